//! The read mix: its shares, and that a seed repeats it.

use tao::key::AssocType;
use tao::message::Call;
use tao::mix::{self, Mix, Question, Random};

const MIX: Mix = Mix { objects: 10_000, atype: AssocType(1), limit: 10, high: 90, low: 10 };

#[test]
fn the_mix_has_the_shares_of_the_paper() {
    const DRAWS: u32 = 200_000;
    let mut random = Random::new(5);
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    for _ in 0..DRAWS {
        let question =
            MIX.draw(&mut random, |id, choice| mix::neighbour(id, choice % mix::degree(id), MIX.objects));
        *counts.entry(Call::of_question(&question).function()).or_default() += 1;
    }
    let expected = [
        ("assoc_get", 15.7),
        ("assoc_range", 40.9),
        ("assoc_count", 11.7),
        ("obj_get", 28.9),
        ("assoc_time_range", 2.8),
    ];
    for (name, percent) in expected {
        let share = f64::from(counts[name]) * 100.0 / f64::from(DRAWS);
        assert!((share - percent).abs() < 0.5, "{name}: {share} instead of {percent}");
    }
}

#[test]
fn a_seed_repeats_the_questions() {
    let draw = |seed: u64| -> Vec<Question> {
        let mut random = Random::new(seed);
        (0..100).map(|_| MIX.draw(&mut random, |_, choice| choice % 100)).collect()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn the_synthetic_graph_has_ten_edges_a_node_and_stays_in_bounds() {
    let objects = 5_000;
    let edges: u64 = (0..objects).map(mix::degree).sum();
    assert!((9 * objects..11 * objects).contains(&edges), "{edges}");
    assert!(
        (0..objects).all(|id| (1..20).contains(&mix::degree(id)) && mix::neighbour(id, 3, objects) < objects)
    );
}
