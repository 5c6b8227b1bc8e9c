//! What clients know of the objects of a server that crashes, and what that allows it to show afterwards.
//!
//! Versions order the states of a key: an object with its version, then the absence after its removal. No answer may show
//! a state of before one that an earlier answer showed, whether the server crashed in between or not. After a crash a
//! key has the newest state that was shown, or one that a request without an answer made later.

use std::collections::BTreeSet;

use fastrand::Rng;

/// Most bytes behind the number in a value.
const FILLER_BYTES_MAX: usize = 12_000;

/// A state in the history of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct State(u64);

impl State {
    /// No object, and none before.
    const NEVER: State = State(1);

    /// An object with this version.
    pub fn present(version: u64) -> State {
        State(2 * version)
    }

    /// No object, after the removal of this version.
    pub fn removed(version: u64) -> State {
        State(2 * version + 1)
    }

    /// The first absence that is not before this state.
    pub fn absence(self) -> State {
        State(self.0 | 1)
    }

    /// The version of the object; `None` if there is none.
    pub fn version(self) -> Option<u64> {
        (!self.is_absence()).then_some(self.0 / 2)
    }

    fn is_absence(self) -> bool {
        self.0 % 2 == 1
    }
}

/// A key that clients put and delete. Each put has a number of its own, which its value tells.
#[derive(Debug)]
pub struct Object {
    newest: State,
    /// The number of the newest object, as far as known.
    number: Option<u64>,
    /// Puts and deletes without an answer.
    puts: BTreeSet<u64>,
    deletes: u32,
}

impl Default for Object {
    fn default() -> Self {
        Self { newest: State::NEVER, number: None, puts: BTreeSet::new(), deletes: 0 }
    }
}

impl Object {
    /// The newest state that an answer showed.
    pub fn newest(&self) -> State {
        self.newest
    }

    /// A put or delete is about to be sent.
    pub fn begin_put(&mut self, number: u64) {
        assert!(self.puts.insert(number), "numbers are used once");
    }

    pub fn begin_delete(&mut self) {
        self.deletes += 1;
    }

    /// A put was answered; `known` is the newest state at the time when it was sent.
    pub fn end_put(&mut self, number: u64, version: u64, known: State) {
        let state = State::present(version);
        assert!(state > known, "put {number} got version {version}, not above {known:?}");
        self.see(state, Some(number));
        assert!(self.puts.remove(&number), "a put ends once");
    }

    /// A put or delete was refused, and wrote nothing.
    pub fn refuse_put(&mut self, number: u64) {
        assert!(self.puts.remove(&number), "a put ends once");
    }

    pub fn refuse_delete(&mut self) {
        self.deletes -= 1;
    }

    /// A delete removed this version.
    pub fn end_delete(&mut self, version: u64, known: State) {
        assert!(State::removed(version) > known, "version {version} was removed after {known:?}");
        self.see(State::removed(version), None);
        self.deletes -= 1;
    }

    /// An answer showed an object.
    pub fn show(&mut self, version: u64, number: Option<u64>, known: State) {
        let state = State::present(version);
        assert!(state >= known, "version {version} (put {number:?}) was shown after {known:?}");
        self.see(state, number);
    }

    /// An answer showed that there is no object.
    pub fn show_absence(&mut self, known: State) {
        self.see(known.absence(), None);
    }

    fn see(&mut self, state: State, number: Option<u64>) {
        if state == self.newest {
            let both = self.number.zip(number);
            assert!(both.is_none_or(|(known, shown)| known == shown), "{both:?} at {state:?}");
            self.number = self.number.or(number);
        }
        if state > self.newest {
            if let Some(number) = number {
                assert!(self.puts.contains(&number), "put {number} at {state:?} had ended: {self:?}");
            }
            (self.newest, self.number) = (state, number);
        }
    }

    /// Checks what is there after a crash: version and number. It is the newest state from now on.
    pub fn recover(&mut self, found: Option<(u64, u64)>) -> Result<(), String> {
        match found {
            Some((version, number)) => {
                let state = State::present(version);
                let is_newest = state == self.newest && self.number.is_none_or(|known| known == number);
                let is_later = state > self.newest && self.puts.contains(&number);
                if !is_newest && !is_later {
                    return Err(format!("put {number} with version {version} is there: {self:?}"));
                }
                (self.newest, self.number) = (state, Some(number));
            }
            None if self.newest.is_absence() || self.deletes > 0 => {
                (self.newest, self.number) = (self.newest.absence(), None);
            }
            None => return Err(format!("nothing is there: {self:?}")),
        }
        self.puts.clear();
        self.deletes = 0;
        Ok(())
    }
}

/// A key whose number clients raise by one.
#[derive(Debug, Default)]
pub struct Counter {
    /// The highest value that an answer showed, and the highest version.
    pub value: i64,
    pub version: u64,
    /// Increments with an answer since the key was empty, and those without.
    answered: i64,
    open: i64,
}

impl Counter {
    /// An increment is about to be sent.
    pub fn begin(&mut self) {
        self.open += 1;
    }

    /// An increment was answered; `known` is the highest value at the time when it was sent.
    pub fn end(&mut self, value: i64, version: u64, known: i64) {
        assert!(value > known, "an increment to {value} after {known} was shown");
        (self.value, self.version) = (self.value.max(value), self.version.max(version));
        self.answered += 1;
        self.open -= 1;
    }

    /// An increment was refused, and wrote nothing.
    pub fn refuse(&mut self) {
        self.open -= 1;
    }

    /// An answer showed the number.
    pub fn show(&mut self, value: i64, version: u64, known: i64) {
        assert!(value >= known, "{value} was shown after {known}");
        (self.value, self.version) = (self.value.max(value), self.version.max(version));
    }

    /// Checks what is there after a crash: each increment with an answer once, each other one at most once.
    pub fn recover(&mut self, (value, version): (i64, u64)) -> Result<(), String> {
        let may_be = self.answered..=self.answered + self.open;
        if !may_be.contains(&value) || value < self.value || version < self.version {
            return Err(format!("{value} with version {version} is there: {self:?}"));
        }
        *self = Counter { value, version, answered: value, open: 0 };
        Ok(())
    }
}

/// The value that a put with this number writes.
pub fn value_of(number: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(number);
    let mut value = number.to_le_bytes().to_vec();
    // Mostly short, so that there are many.
    let most = [16, 200, FILLER_BYTES_MAX][random.usize(0..3)];
    let filler = random.usize(0..most);
    value.extend(std::iter::repeat_with(|| random.u8(..)).take(filler));
    value
}

/// The number of the put that wrote a value.
pub fn number_of(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*value.first_chunk().expect("a number"));
    assert!(value == value_of(number), "the value of put {number} is not what was put");
    number
}

#[test]
fn the_model_refuses_what_a_crash_may_not_show() {
    let put = |object: &mut Object, number, version| {
        let known = object.newest();
        object.begin_put(number);
        object.end_put(number, version, known);
    };
    let mut object = Object::default();
    put(&mut object, 1, 10);
    put(&mut object, 2, 11);
    object.begin_put(3);
    for found in [None, Some((10, 1)), Some((11, 3)), Some((12, 2)), Some((12, 1))] {
        assert!(object.recover(found).is_err(), "{found:?}");
    }
    assert!(object.recover(Some((12, 3))).is_ok());
    assert!(object.recover(Some((12, 3))).is_ok(), "it stays");
    object.begin_delete();
    assert!(object.recover(None).is_ok());
    assert!(object.recover(Some((12, 3))).is_err(), "its absence was seen");

    let mut counter = Counter::default();
    for value in 1..4 {
        counter.begin();
        counter.end(value, value as u64, value - 1);
    }
    counter.begin();
    assert!(counter.recover((2, 9)).is_err() && counter.recover((5, 9)).is_err());
    assert!(counter.recover((4, 9)).is_ok());
}
