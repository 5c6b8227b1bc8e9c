//! Loads made by hand, second by second: who moves, and who does not.

use wire::TenantId;

use super::{HomeBalancer, Look, Move, TenantWork};
use crate::limits::{HOME_STAYS_US, HOMES_LOPSIDED_LOOKS};

const SECOND_US: u64 = 1_000_000;

/// A server of which each second has the same load.
struct Server {
    homes: HomeBalancer,
    look: Look,
    moves: Vec<Move>,
}

impl Server {
    fn new(workers: usize, tenants: &[(u32, u16)]) -> Self {
        let tenant = |&(tenant, home)| TenantWork { tenant: TenantId(tenant), home, cycles: 0 };
        let tenants = tenants.iter().map(tenant).collect();
        let look = Look { at_us: 0, busy_us: vec![0; workers], tenants };
        let mut server = Self { homes: HomeBalancer::default(), look, moves: Vec::new() };
        server.look_and_move();
        server
    }

    fn look_and_move(&mut self) {
        if let Some(chosen) = self.homes.look(self.look.clone()) {
            self.moves.push(chosen);
            for tenant in &mut self.look.tenants {
                if tenant.tenant == chosen.tenant {
                    assert_eq!(tenant.home, chosen.from);
                    tenant.home = chosen.to;
                }
            }
        }
    }

    /// Simulates a second in which the tenants cause these cycles; a worker executes at most a thousand.
    fn second(&mut self, cycles: &[u64]) {
        self.look.at_us += SECOND_US;
        for (index, busy_us) in self.look.busy_us.iter_mut().enumerate() {
            let at_home =
                self.look.tenants.iter().zip(cycles).filter(|(tenant, _)| tenant.home == index as u16);
            *busy_us += at_home.map(|(_, cycles)| *cycles).sum::<u64>().min(1000) * SECOND_US / 1000;
        }
        for (tenant, cycles) in self.look.tenants.iter_mut().zip(cycles) {
            tenant.cycles += cycles;
        }
        self.look_and_move();
    }
}

fn moved(tenant: u32, from: u16, to: u16) -> Move {
    Move { tenant: TenantId(tenant), from, to }
}

#[test]
fn of_many_tenants_on_a_full_worker_the_one_moves_that_evens_it_out() {
    let mut server = Server::new(2, &[(1, 0), (2, 0), (3, 0), (4, 1)]);
    for _ in 0..60 {
        server.second(&[500, 300, 200, 100]);
    }
    // 1,000 and 100: with 500 moved 500 and 600, with 300 moved 700 and 400, with 200 moved 800 and 300.
    assert_eq!(server.moves, [moved(1, 0, 1)]);
}

#[test]
fn a_burst_moves_nobody() {
    let mut server = Server::new(2, &[(1, 0), (2, 0)]);
    for second in 0..60 {
        let loaded = second % (HOMES_LOPSIDED_LOOKS + 1) != 0;
        server.second(if loaded { &[0, 0] } else { &[600, 600] });
    }
    assert_eq!(server.moves, []);
}

#[test]
fn a_worker_with_time_to_spare_keeps_its_tenants() {
    let mut server = Server::new(2, &[(1, 0), (2, 0)]);
    for _ in 0..60 {
        server.second(&[400, 400]);
    }
    assert_eq!(server.moves, []);
}

#[test]
fn a_tenant_that_fills_a_worker_by_itself_stays() {
    let mut server = Server::new(4, &[(1, 0), (2, 1)]);
    for _ in 0..60 {
        server.second(&[5_000, 10]);
    }
    assert_eq!(server.moves, []);
}

#[test]
fn who_is_beside_a_tenant_that_fills_a_worker_moves_only_if_that_helps() {
    let mut server = Server::new(2, &[(1, 0), (2, 0), (3, 0)]);
    for _ in 0..60 {
        server.second(&[2_000, 150, 20]);
    }
    // Neither lowers the worker's load by a tenth.
    assert_eq!(server.moves, []);
    for _ in 0..60 {
        server.second(&[2_000, 400, 20]);
    }
    assert_eq!(server.moves, [moved(2, 0, 1)]);
}

#[test]
fn nobody_moves_twice_in_a_while_and_a_steady_load_comes_to_rest() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..50 {
        let workers = random.usize(2..6);
        let tenants: Vec<(u32, u16)> = (0..20).map(|tenant| (tenant, random.u16(..workers as u16))).collect();
        let cycles: Vec<u64> = tenants.iter().map(|_| random.u64(..400)).collect();
        let mut server = Server::new(workers, &tenants);
        let mut last_us = std::collections::HashMap::new();
        for _ in 0..200 {
            let before = server.moves.len();
            server.second(&cycles);
            for chosen in &server.moves[before..] {
                let at_us = server.look.at_us;
                let earlier_us = last_us.insert(chosen.tenant, at_us);
                assert!(earlier_us.is_none_or(|earlier_us| at_us - earlier_us >= HOME_STAYS_US));
            }
            assert!(server.moves.len() - before <= 1);
        }
        let settled = server.moves.len();
        for _ in 0..100 {
            server.second(&cycles);
        }
        assert_eq!(server.moves.len(), settled, "tenants went on moving under a load that stays the same");
    }
}

#[test]
fn a_lone_worker_has_nobody_to_give_to() {
    let mut server = Server::new(1, &[(1, 0), (2, 0)]);
    for _ in 0..10 {
        server.second(&[900, 900]);
    }
    assert_eq!(server.moves, []);
}
