//! Random calls against the model: short and long lists, equal times, replaced and deleted entries.

use super::harness::{Graph, Model, friends_of, seed};
use tao::entry::Span;
use tao::key::{ListId, ObjectId};
use tao::mix::Random;

/// What one random test does.
struct Plan {
    steps: u64,
    lists: u64,
    ends: u64,
    times: u64,
    data_bytes_max: u64,
    /// Deletions per hundred writes, in turn: the lists grow, then shrink.
    delete_percent: [u64; 2],
    compare_every: u64,
}

fn compare(graph: &Graph, model: &Model, list: ListId, random: &mut Random, plan: &Plan) {
    let all = model.list(list);
    assert_eq!(graph.count(list), model.count(list) as u64);
    let (position, limit) = (random.below(all.len() as u64 + 2), random.below(200));
    let from = (position as usize).min(all.len());
    let expected = &all[from..all.len().min(from + limit as usize)];
    assert_eq!(graph.range(list, position as u32, limit as u32), expected);
    let (one, other) = (random.below(plan.times + 1), random.below(plan.times + 1));
    let span = Span { high: one.max(other), low: one.min(other) };
    let limit = random.below(150) as usize;
    assert_eq!(graph.time_range(list, span, limit as u32), model.time_range(list, span, limit));
    let ids: Vec<ObjectId> = (0..random.below(40)).map(|_| ObjectId(random.below(plan.ends + 5))).collect();
    for span in [Span::ALL, span] {
        assert_eq!(graph.get(list, &ids, span), model.get(list, &ids, span));
    }
}

fn run(plan: &Plan, seed: u64) {
    let (graph, mut model, mut random) = (Graph::new(), Model::default(), Random::new(seed));
    for step in 0..plan.steps {
        let list = friends_of(random.below(plan.lists));
        let id2 = random.below(plan.ends);
        let delete_percent = plan.delete_percent[(step * 4 / plan.steps % 2) as usize];
        if random.below(100) < delete_percent {
            assert_eq!(graph.delete(list, id2), model.delete(list, id2), "step {step}");
        } else {
            let time = random.below(plan.times);
            let data = vec![step as u8; random.below(plan.data_bytes_max + 1) as usize];
            assert_eq!(graph.add(list, id2, time, &data), model.add(list, id2, time, &data), "step {step}");
        }
        if step % plan.compare_every == 0 {
            compare(&graph, &model, list, &mut random, plan);
        }
    }
    for id in 0..plan.lists {
        let list = friends_of(id);
        assert_eq!(graph.range(list, 0, u32::MAX), model.list(list));
        for end in 0..plan.ends {
            assert_eq!(graph.delete(list, end), model.delete(list, end));
        }
        assert_eq!(graph.count(list), 0);
    }
    assert_eq!(graph.records_left(plan.lists, plan.ends), 0, "an emptied graph leaves no record");
}

#[test]
fn short_lists_agree_with_the_model() {
    let plan = Plan {
        steps: 20_000,
        lists: 20,
        ends: 40,
        times: 30,
        data_bytes_max: 40,
        delete_percent: [20, 60],
        compare_every: 3,
    };
    run(&plan, seed(1));
}

#[test]
fn lists_at_the_border_of_their_forms_agree_with_the_model() {
    let plan = Plan {
        steps: 20_000,
        lists: 4,
        ends: 70,
        times: 1_000,
        data_bytes_max: 20,
        delete_percent: [10, 70],
        compare_every: 5,
    };
    run(&plan, seed(2));
}

#[test]
fn long_lists_with_equal_times_agree_with_the_model() {
    let plan = Plan {
        steps: 16_000,
        lists: 2,
        ends: 3_000,
        times: 50,
        data_bytes_max: 30,
        delete_percent: [5, 80],
        compare_every: 40,
    };
    run(&plan, seed(3));
}

#[test]
fn lists_of_large_entries_agree_with_the_model() {
    let plan = Plan {
        steps: 3_000,
        lists: 2,
        ends: 120,
        times: 500,
        data_bytes_max: 4_096,
        delete_percent: [10, 70],
        compare_every: 10,
    };
    run(&plan, seed(4));
}
