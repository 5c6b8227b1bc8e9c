//! The places of a source that a mutation can change: where each kind of syntax stands in its text.

use std::ops::Range;

use proc_macro2::extra::invalidate_current_thread_spans;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprMethodCall, Item, Lifetime, Lit, Macro, Token, Type};

/// A range of bytes of a text.
pub type Place = Range<usize>;

/// The places of one source, by kind.
#[derive(Default)]
pub struct Places {
    pub expressions: Vec<Place>,
    /// The statements of each block.
    pub blocks: Vec<Vec<Place>>,
    pub types: Vec<Place>,
    pub lifetimes: Vec<Place>,
    pub operators: Vec<Place>,
    pub numbers: Vec<Place>,
    pub names: Vec<Place>,
    pub methods: Vec<Place>,
    /// The `&` or `&mut` in front of what is borrowed.
    pub borrows: Vec<Place>,
    pub items: Vec<Place>,
}

impl Places {
    /// Returns the places of a source; `None` if it is no Rust.
    pub fn of(text: &str) -> Option<Self> {
        // The parser remembers every text that it has read, until it is told that none is needed any more.
        invalidate_current_thread_spans();
        let file = syn::parse_file(text).ok()?;
        let items = file.items.iter().filter(|item| !is_frame(item)).map(place).collect();
        let mut places = Self { items, ..Self::default() };
        places.visit_file(&file);
        Some(places)
    }
}

/// Whether every program needs the item, once.
fn is_frame(item: &Item) -> bool {
    matches!(item, Item::Use(_) | Item::ExternCrate(_) | Item::Macro(_))
}

fn place(node: &impl Spanned) -> Place {
    node.span().byte_range()
}

impl<'ast> Visit<'ast> for Places {
    fn visit_item(&mut self, item: &'ast Item) {
        // Unit tests are no part of what is compiled.
        if !matches!(item, Item::Mod(module) if module.ident == "tests") {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let at = place(expression);
        match expression {
            Expr::Path(path) if path.path.get_ident().is_some() => self.names.push(at.clone()),
            Expr::Reference(borrow) => self.borrows.push(at.start..place(&borrow.expr).start),
            _ => {}
        }
        self.expressions.push(at);
        visit::visit_expr(self, expression);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.blocks.push(block.stmts.iter().map(place).collect());
        visit::visit_block(self, block);
    }

    fn visit_type(&mut self, of: &'ast Type) {
        self.types.push(place(of));
        if let Type::Reference(borrow) = of {
            self.borrows.push(place(of).start..place(&borrow.elem).start);
        }
        visit::visit_type(self, of);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.lifetimes.push(lifetime.span().byte_range());
    }

    fn visit_bin_op(&mut self, operator: &'ast BinOp) {
        self.operators.push(place(operator));
    }

    fn visit_lit(&mut self, literal: &'ast Lit) {
        if let Lit::Int(number) = literal {
            self.numbers.push(number.span().byte_range());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.methods.push(call.method.span().byte_range());
        visit::visit_expr_method_call(self, call);
    }

    /// The arguments of a macro, where they are expressions.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let Ok(arguments) = called.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) else {
            return;
        };
        for argument in &arguments {
            // The nodes live as long as this call: only their places are kept.
            Places::visit_argument(self, argument);
        }
    }
}

impl Places {
    fn visit_argument(&mut self, argument: &Expr) {
        let mut inside = Self::default();
        inside.visit_expr(argument);
        self.expressions.append(&mut inside.expressions);
        self.blocks.append(&mut inside.blocks);
        self.operators.append(&mut inside.operators);
        self.numbers.append(&mut inside.numbers);
        self.names.append(&mut inside.names);
        self.methods.append(&mut inside.methods);
        self.borrows.append(&mut inside.borrows);
    }
}
