//! What follows an answer that is not the end: over to the stream, or into a new session.

use wire::{Completion, CompletionError, Status};

use super::Exchange;
use super::lost::{Again, Standing, closed, failed};
use crate::courier::{Done, Job};
use crate::{Error, SessionStatistics, kept};

impl Exchange {
    #[cold]
    pub(super) fn take_second_steps(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        for (sequence, status) in std::mem::take(&mut self.troubles) {
            let kept = self.kept.get(sequence);
            let (tag, code, body) = (kept.tag, kept.code, kept.body().to_vec());
            if status == Status::UseStream {
                self.send_over_stream(sequence, tag, code, body, statistics);
                continue;
            }
            self.standing = Standing::Lost;
            // Sent once, and refused: it was not executed.
            let sent_once = kept.submitted_us >= self.resent_us;
            if kept.is_read() || sent_once {
                self.again.push_back(Again { tag, code, body });
            } else {
                complete(closed(tag, sequence));
            }
        }
        if self.on_stream > 0 {
            for done in self.courier.take_done() {
                self.settle_done(done, statistics, complete);
            }
        }
        if self.standing == Standing::Lost {
            self.reopen(statistics, complete)?;
        }
        self.submit_again(now_us, statistics);
        Ok(())
    }

    /// The stream has done its part of a request.
    fn settle_done(
        &mut self,
        done: Done,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let Done { job, answer } = done;
        self.on_stream -= 1;
        let Job { token, tag, sequence, code, body, .. } = job;
        if token == self.opened.token {
            self.requester.release(sequence);
        } else {
            self.orphans -= 1;
        }
        let lost = matches!(answer, Err(Error::SessionLost) | Ok((Status::BadToken, _)));
        if lost && token == self.opened.token {
            self.standing = Standing::Lost;
        }
        match answer {
            _ if lost && kept::is_read(code) => self.again.push_back(Again { tag, code, body }),
            _ if lost => complete(closed(tag, sequence)),
            Ok((status, body)) => {
                statistics.stream_bytes += body.len() as u64;
                complete(Completion { tag, sequence, status: Ok(status), body: &body });
            }
            Err(Error::Overloaded) => complete(failed(tag, sequence, CompletionError::Overloaded)),
            Err(Error::Throttled { .. }) => complete(failed(tag, sequence, CompletionError::Throttled)),
            Err(_) => complete(failed(tag, sequence, CompletionError::TimedOut)),
        }
    }
}
