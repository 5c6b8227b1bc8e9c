//! What a session's requests came to.

use std::collections::HashMap;

use splinter_client::{Completion, Error, Session};

/// Completes everything that is outstanding; the bodies of good answers, by tag.
pub fn finish(session: &mut Session) -> HashMap<u64, Result<Vec<u8>, Error>> {
    let mut answers = HashMap::new();
    while session.outstanding() > 0 {
        let take = &mut |completion: Completion<'_>| {
            let answer = Error::check(&completion).map(<[u8]>::to_vec);
            assert!(answers.insert(completion.tag, answer).is_none(), "one completion for each request");
        };
        session.poll_waiting(take).unwrap();
    }
    answers
}
