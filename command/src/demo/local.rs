//! The method of plain gets: the graph's functions run in the client and read records over the network.

use super::aggregate;
use super::question::{Answered, Question, QuestionKind, Remote, Way};
use crate::failure::Failure;
use crate::tao::failure_of;
use client::{Local, Session, SessionStatistics};
use tao::function;

/// Runs questions in the client.
pub struct LocalWay {
    local: Local,
    /// Id of the invocation of the first question in the series; the others are consecutive.
    first_id: u64,
    question: Remote,
}

impl LocalWay {
    /// Returns the method over a session.
    pub fn new(session: Session) -> LocalWay {
        LocalWay { local: Local::new(session), first_id: 0, question: Remote::default() }
    }
}

impl Way for LocalWay {
    fn start(&mut self, index: u64, question: &Question) -> Result<(), Failure> {
        let id = match &question.kind {
            QuestionKind::Aggregate(list) => self.local.spawn_read(aggregate::sum, question.table, list, &[]),
            _ => {
                question.pushed_down(&mut self.question);
                let Remote { function, key, arguments, .. } = &self.question;
                let name = function.unwrap_or_default();
                let run = async move |db: &sandstorm::Db<'_>,
                                      args: sandstorm::Args<'_>,
                                      reply: &mut sandstorm::Reply<'_>| {
                    function::by_name(name, db, args, reply).await
                };
                self.local.spawn_read(run, question.table, key, arguments)
            }
        };
        if index == 0 {
            self.first_id = id;
        }
        Ok(())
    }

    fn poll(&mut self, answered: &mut dyn FnMut(Answered<'_>)) -> Result<(), Failure> {
        let first_id = self.first_id;
        let mut failure = None;
        self.local.poll_waiting(&mut |finished| match finished.result {
            Ok(answer) => {
                let round_trips = finished.round_trips;
                answered(Answered { index: finished.id - first_id, answer, round_trips });
            }
            Err(error) => drop(failure.get_or_insert(error)),
        })?;
        match failure {
            None => Ok(()),
            Some(client::local::LocalFailure::Server(error)) => Err(failure_of(error)),
            Some(error) => Err(Failure::new(crate::failure::FailureKind::Extension, error.to_string())),
        }
    }

    fn statistics(&mut self) -> SessionStatistics {
        self.local.session().statistics()
    }
}
