//! The two forms of one extension, each on a worker of its own, which get the same invocations.

use std::sync::Arc;

use db::extension::Extension;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use wire::Status;

use crate::worker::{ORDERED, TABLE, Worker};

/// Status and body of a reply.
pub type Answer = (Status, Vec<u8>);

/// One form of an extension on a worker of its own.
pub struct Side {
    pub worker: Worker,
    pub extension: Arc<Extension>,
}

/// The two forms of one extension.
pub struct Pair {
    pub native: Side,
    pub module: Side,
}

impl Pair {
    /// Makes the workers, with these limits but for the form; an extension for each form, so that metrics tell them
    /// apart.
    pub fn new(budget: LimitOverrides, extension: impl FnMut(Sandbox) -> Arc<Extension>) -> Self {
        let forms = [Sandbox::Native, Sandbox::Wasm];
        let [native, module] = forms.map(extension_of(budget, extension));
        Self { native, module }
    }

    /// Writes an object at both.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        for side in [&self.native, &self.module] {
            side.worker.put(key, value);
        }
    }

    /// Runs one invocation in both forms.
    pub fn call_both(
        &mut self,
        function: &str,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> (Answer, Answer) {
        let [native, module] = [&mut self.native, &mut self.module].map(|side| {
            let mut answer = None;
            let Side { worker, extension } = side;
            worker.run_in(extension, (function, table), key, arguments, &mut |status, body| {
                // Texts name the extension, and the two may have different names.
                let text =
                    String::from_utf8(body.to_vec()).map(|text| text.replace("-2@1", "-1@1").into_bytes());
                answer = Some((status, text.unwrap_or_else(|_| body.to_vec())));
            });
            answer.expect("an invocation ends")
        });
        (native, module)
    }

    /// Whether both hold the same objects.
    pub fn holds_the_same(&self) -> bool {
        let same = |table| self.native.worker.objects(table) == self.module.worker.objects(table);
        same(TABLE) && same(ORDERED)
    }
}

fn extension_of(
    budget: LimitOverrides,
    mut extension: impl FnMut(Sandbox) -> Arc<Extension>,
) -> impl FnMut(Sandbox) -> Side {
    move |sandbox| {
        let budget = LimitOverrides { sandbox: Some(sandbox), ..budget };
        Side { worker: Worker::with_budget(budget), extension: extension(sandbox) }
    }
}
