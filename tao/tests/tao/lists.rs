//! Long lists: a node with 10,000 edges in every order of insertion, and what plain puts load.

use super::harness::{Graph, Model, friends_of, seed};
use tao::bulk;
use tao::entry::{Entry, Span};
use tao::head::Head;
use tao::key::{self, ObjectId};
use tao::limits::{CHUNK_ENTRIES_MAX, INLINE_ENTRIES_MAX};
use tao::mix::Random;

const EDGES: u64 = 10_000;

/// Adds so many edges in an order of times, with deletes and doubles between, and compares everything.
fn fill(times: &mut dyn FnMut(u64) -> u64, random: &mut Random) -> (Graph, Model) {
    let (graph, mut model) = (Graph::new(), Model::default());
    let list = friends_of(1);
    for edge in 0..EDGES {
        let (time, data) = (times(edge), edge.to_le_bytes());
        assert_eq!(graph.add(list, edge, time, &data), model.add(list, edge, time, &data));
        if edge % 50 == 0 {
            let again = random.below(edge + 1);
            let time = times(random.below(edge + 1));
            assert_eq!(graph.add(list, again, time, b"again"), model.add(list, again, time, b"again"));
        }
        if edge % 70 == 0 {
            let gone = random.below(edge + 1);
            assert_eq!(graph.delete(list, gone), model.delete(list, gone));
        }
    }
    (graph, model)
}

fn check(graph: &Graph, model: &Model, random: &mut Random) {
    let list = friends_of(1);
    let all = model.list(list);
    assert_eq!(graph.count(list), all.len() as u64);
    for position in (0..all.len() + 6_000).step_by(2_500) {
        let from = position.min(all.len());
        let expected = &all[from..all.len().min(from + 6_000)];
        assert_eq!(graph.range(list, position as u32, 6_000), expected);
    }
    for _ in 0..200 {
        let position = random.below(all.len() as u64) as usize;
        assert_eq!(graph.range(list, position as u32, 1), all[position..=position]);
        let high = random.below(EDGES);
        let span = Span { high, low: high.saturating_sub(random.below(300)) };
        assert_eq!(graph.time_range(list, span, 100), model.time_range(list, span, 100));
        let ids = [ObjectId(random.below(EDGES + 9)), ObjectId(random.below(EDGES))];
        assert_eq!(graph.get(list, &ids, Span::ALL), model.get(list, &ids, Span::ALL));
    }
}

fn chunks(graph: &Graph) -> usize {
    let record = graph.db.get(graph.table, &key::head(friends_of(1))).unwrap();
    match Head::parse(&record).unwrap() {
        Head::Chunked(directory) => directory.chunks(),
        Head::Inline { .. } => 0,
    }
}

#[test]
fn ten_thousand_edges_in_random_order_read_back_in_order() {
    let mut random = Random::new(seed(11));
    let mut times = Random::new(random.next_u64());
    let (graph, model) = fill(&mut |_| times.below(EDGES), &mut random);
    check(&graph, &model, &mut random);
}

#[test]
fn ten_thousand_edges_of_one_time_read_back_in_order() {
    let mut random = Random::new(seed(12));
    let (graph, model) = fill(&mut |_| 5, &mut random);
    check(&graph, &model, &mut random);
}

#[test]
fn edges_in_order_of_time_fill_their_chunks_either_way() {
    for rising in [true, false] {
        let mut random = Random::new(seed(13));
        let (graph, model) = fill(&mut |edge| if rising { edge } else { EDGES - edge }, &mut random);
        check(&graph, &model, &mut random);
        let full = EDGES as usize / CHUNK_ENTRIES_MAX;
        assert!(chunks(&graph) < full * 8 / 5, "{} chunks", chunks(&graph));
    }
}

#[test]
fn a_list_that_stalls_at_every_record_answers_the_same() {
    let mut random = Random::new(seed(14));
    let (graph, model) = fill(&mut |edge| edge, &mut random);
    graph.db.set_stalling(true);
    check(&graph, &model, &mut random);
}

#[test]
fn plain_puts_load_what_adding_one_by_one_leads_to() {
    let mut random = Random::new(seed(15));
    for count in [0, 1, 10, INLINE_ENTRIES_MAX, INLINE_ENTRIES_MAX + 1, 53, 129, 3_000] {
        let (one_by_one, at_once, list) = (Graph::new(), Graph::new(), friends_of(1));
        let mut data = vec![Vec::new(); count];
        data.fill_with(|| vec![b'x'; random.below(200) as usize]);
        let mut given = Vec::new();
        for data in &data {
            let id2 = ObjectId(random.below(count as u64 * 2));
            given.push(Entry { time: random.below(500), id2, data });
        }
        for entry in &given {
            one_by_one.add(list, entry.id2.0, entry.time, entry.data);
        }
        for put in bulk::list_records(list, &given) {
            at_once.db.put(at_once.table, &put.key, &put.value);
        }
        assert_eq!(at_once.count(list), one_by_one.count(list));
        assert_eq!(at_once.range(list, 0, 6_000), one_by_one.range(list, 0, 6_000));
        let ids: Vec<ObjectId> = (0..40).map(|_| ObjectId(random.below(count as u64 * 2 + 1))).collect();
        assert_eq!(at_once.get(list, &ids, Span::ALL), one_by_one.get(list, &ids, Span::ALL));
        let first = given.first().map_or(0, |entry| entry.id2.0);
        assert_eq!(at_once.delete(list, first), count > 0);
        assert!(at_once.add(list, first, 77, b"back"));
    }
}
