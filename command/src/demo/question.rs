//! The questions of the demo, and their form in each of the methods.

use super::aggregate::{self, Total};
use crate::failure::Failure;
use crate::graph::{FRIEND, Graph};
use crate::tao::load::TIME_FIRST;
use client::{Client, Function, SessionStatistics};
use std::collections::HashMap;
use tao::key::{self, ListId, ObjectId};
use tao::message::{Call, Friends, FriendsOfFriends};
use tao::mix::{Mix, Question as MixQuestion, Random};

/// Number of friends per question: with their objects they fit into a datagram.
pub const FRIENDS: u32 = 20;
/// Number of friends of friends per question.
pub const FRIENDS_OF_FRIENDS: u32 = 10;
/// Number of entries of a range in the mix.
const RANGE: u32 = 10;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Table that it reads.
    pub table: u32,
    /// Kind of the question.
    pub kind: QuestionKind,
}

/// Kinds of questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// The newest friends with their objects.
    Friends(ListId),
    /// The friends of friends on most paths, with their objects.
    FriendsOfFriends(ListId),
    /// A question of the read mix.
    Mix(MixQuestion),
    /// The sum over the records of a list; holds the key of the list.
    Aggregate(Vec<u8>),
}

/// The functions that answer questions, resolved once.
#[derive(Clone, Debug)]
pub struct Functions {
    by_name: HashMap<&'static str, Function>,
}

/// The first request of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The function to invoke; `None` for a plain get of the key.
    pub function: Option<&'static str>,
    /// The key.
    pub key: Vec<u8>,
    /// The arguments of the function.
    pub arguments: Vec<u8>,
    /// True if multi-gets then read the objects that the reply names.
    pub fetch: bool,
}

impl Question {
    /// Returns the question as one invocation.
    pub fn pushed_down(&self, to: &mut Remote) {
        self.encode(true, to);
    }

    /// Returns the question with objects by plain gets and associations by the extension. The list of an aggregate
    /// and its members are objects, so an aggregate needs no extension.
    pub fn hybrid(&self, to: &mut Remote) {
        self.encode(false, to);
        let object =
            matches!(self.kind, QuestionKind::Mix(MixQuestion::ObjGet { .. }) | QuestionKind::Aggregate(_));
        if object {
            to.function = None;
        }
        to.fetch = !matches!(self.kind, QuestionKind::Mix(_));
    }

    /// Returns name, key and arguments of the function that answers it.
    fn encode(&self, objects: bool, to: &mut Remote) {
        to.fetch = false;
        let call = match &self.kind {
            QuestionKind::Friends(list) => Call::Friends { list: *list, limit: FRIENDS, objects },
            QuestionKind::FriendsOfFriends(list) => {
                Call::FriendsOfFriends { list: *list, limit: FRIENDS_OF_FRIENDS, visits: 0, objects }
            }
            QuestionKind::Mix(question) => Call::of_question(question),
            QuestionKind::Aggregate(key) => {
                to.function = Some(aggregate::FUNCTION);
                to.key.clone_from(key);
                to.arguments.clear();
                return;
            }
        };
        to.function = Some(call.function());
        call.encode(&mut to.key, &mut to.arguments);
    }

    /// Returns the keys of the objects that a first reply names; `None` if it is not a reply to this question.
    pub fn keys_in(&self, reply: &[u8]) -> Option<Vec<Vec<u8>>> {
        let key_of = |id: ObjectId| key::object(id).to_vec();
        match &self.kind {
            QuestionKind::Friends(_) => Some(Friends::decode(reply)?.ids.into_iter().map(key_of).collect()),
            QuestionKind::FriendsOfFriends(_) => {
                let found = FriendsOfFriends::decode(reply)?;
                Some(found.ranked.into_iter().map(|(id, _)| key_of(id)).collect())
            }
            QuestionKind::Aggregate(_) => Some(aggregate::members(reply).map(<[u8]>::to_vec).collect()),
            QuestionKind::Mix(_) => Some(Vec::new()),
        }
    }

    /// Combines a first reply and the objects that it names into the answer.
    pub fn complete(&self, reply: &mut Vec<u8>, objects: &[Option<Vec<u8>>]) {
        if let QuestionKind::Aggregate(_) = &self.kind {
            let total = Total::over(objects.iter().map(Option::as_deref));
            *reply = total.encode().to_vec();
            return;
        }
        for object in objects {
            append_object(reply, object.as_deref());
        }
    }
}

impl Functions {
    /// Looks up every function that the demo calls.
    pub fn resolve(client: &mut Client) -> Result<Functions, Failure> {
        let of_tao = [
            "friends",
            "friends_of_friends",
            "obj_get",
            "assoc_get",
            "assoc_range",
            "assoc_count",
            "assoc_time_range",
        ];
        let mut by_name = HashMap::new();
        for name in of_tao {
            by_name.insert(name, client.resolve(&format!("tao.{name}"))?);
        }
        let name = aggregate::FUNCTION;
        by_name.insert(name, client.resolve(&format!("{}.{name}", aggregate::EXTENSION))?);
        Ok(Functions { by_name })
    }

    /// Returns the function with a name.
    pub fn get(&self, name: &str) -> Function {
        self.by_name[name]
    }
}

/// Makes questions about a graph.
#[derive(Debug)]
pub struct Asker<'g> {
    graph: &'g Graph,
    table: u32,
    random: Random,
}

impl<'g> Asker<'g> {
    /// Returns a generator of questions about a graph in a table; the same seed generates the same questions.
    pub fn new(graph: &'g Graph, table: u32, seed: u64) -> Asker<'g> {
        Asker { graph, table, random: Random::new(seed) }
    }

    /// Returns aggregates of this many records each, which are in a separate table.
    pub fn aggregates(&mut self, table: u32, size: usize, count: usize) -> Vec<Question> {
        let mut list = || QuestionKind::Aggregate(aggregate::any_list(size, &mut self.random));
        (0..count).map(|_| Question { table, kind: list() }).collect()
    }

    /// Returns questions for friends of random nodes.
    pub fn friends(&mut self, count: usize) -> Vec<Question> {
        (0..count).map(|_| self.about(QuestionKind::Friends)).collect()
    }

    /// Returns questions for friends of friends of random nodes.
    pub fn friends_of_friends(&mut self, count: usize) -> Vec<Question> {
        (0..count).map(|_| self.about(QuestionKind::FriendsOfFriends)).collect()
    }

    /// Returns questions of the read mix; an assoc_get asks for an existing edge.
    pub fn mix(&mut self, count: usize) -> Vec<Question> {
        let (nodes, edges) = (&self.graph.nodes, &self.graph.edges);
        let last = TIME_FIRST + edges.len() as u64;
        let middle = TIME_FIRST + edges.len() as u64 / 2;
        let mix = Mix { objects: nodes.len() as u64, atype: FRIEND, limit: RANGE, high: last, low: middle };
        let mut ends: HashMap<u64, Vec<u64>> = HashMap::new();
        for (left, right) in edges {
            ends.entry(*left).or_default().push(*right);
            ends.entry(*right).or_default().push(*left);
        }
        // The mix numbers nodes consecutively from 0; a file may skip numbers.
        let node = |id: ObjectId| ObjectId(nodes[id.0 as usize]);
        let listed = |list: ListId| ListId { id1: node(list.id1), ..list };
        let mut questions = Vec::with_capacity(count);
        for _ in 0..count {
            let question = mix.draw(&mut self.random, |id, choice| {
                let ends = &ends[&nodes[id as usize]];
                ends[(choice % ends.len() as u64) as usize]
            });
            let question = match question {
                MixQuestion::AssocGet { list, id2 } => MixQuestion::AssocGet { list: listed(list), id2 },
                MixQuestion::AssocRange { list, position, limit } => {
                    MixQuestion::AssocRange { list: listed(list), position, limit }
                }
                MixQuestion::AssocCount { list } => MixQuestion::AssocCount { list: listed(list) },
                MixQuestion::ObjGet { id } => MixQuestion::ObjGet { id: node(id) },
                MixQuestion::AssocTimeRange { list, high, low, limit } => {
                    MixQuestion::AssocTimeRange { list: listed(list), high, low, limit }
                }
            };
            questions.push(Question { table: self.table, kind: QuestionKind::Mix(question) });
        }
        questions
    }

    fn about(&mut self, kind: impl Fn(ListId) -> QuestionKind) -> Question {
        let nodes = &self.graph.nodes;
        let id = nodes[self.random.below(nodes.len() as u64) as usize];
        Question { table: self.table, kind: kind(ListId { id1: ObjectId(id), atype: FRIEND }) }
    }
}

/// A received answer.
#[derive(Debug)]
pub struct Answered<'a> {
    /// Index of the question.
    pub index: u64,
    /// The answer.
    pub answer: &'a [u8],
    /// Number of sequential round trips.
    pub round_trips: u32,
}

/// A method of asking: starts questions, and returns answers as they arrive.
pub trait Way {
    /// Starts a question. Indices count up from 0 within a series, which begins when nothing is outstanding.
    fn start(&mut self, index: u64, question: &Question) -> Result<(), Failure>;
    /// Waits for an answer and returns it.
    fn poll(&mut self, answered: &mut dyn FnMut(Answered<'_>)) -> Result<(), Failure>;
    /// Returns the traffic of its session so far.
    fn statistics(&mut self) -> SessionStatistics;
}

/// Appends the record of an object to a reply, as the extension does.
fn append_object(reply: &mut Vec<u8>, record: Option<&[u8]>) {
    match record {
        None => reply.extend_from_slice(&tao::message::NO_OBJECT.to_le_bytes()),
        Some(record) => {
            reply.extend_from_slice(&(record.len() as u32).to_le_bytes());
            reply.extend_from_slice(record);
        }
    }
}
