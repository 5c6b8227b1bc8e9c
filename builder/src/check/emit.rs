//! Writes checked tokens as text, at their original lines.
//!
//! The compiler gets this text instead of the author's: comments are gone, doc comments have become attributes, and
//! text that the check did not see as a token is missing. Columns are kept unless something on the line grew.

use proc_macro2::Delimiter;
use proc_macro2::LineColumn;
use proc_macro2::Spacing;
use proc_macro2::Span;
use proc_macro2::TokenStream;
use proc_macro2::TokenTree;

/// Returns the text of tokens.
pub(super) fn text(tokens: TokenStream) -> String {
    let mut text = Text { written: String::new(), line: 1, column: 0, end: None, joint: false };
    text.stream(tokens);
    text.written.push('\n');
    text.written
}

/// Text being written.
struct Text {
    written: String,
    line: usize,
    column: usize,
    /// The end of the latest token in the source.
    end: Option<LineColumn>,
    /// Whether the latest token must touch the next.
    joint: bool,
}

impl Text {
    /// Writes a stream of tokens, whose nesting was limited before.
    fn stream(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::None => ("", ""),
                    };
                    self.token(open, group.span_open(), false);
                    self.stream(group.stream());
                    self.token(close, group.span_close(), false);
                }
                TokenTree::Punct(mark) => {
                    self.token(&mark.to_string(), mark.span(), mark.spacing() == Spacing::Joint);
                }
                TokenTree::Ident(word) => self.token(&word.to_string(), word.span(), false),
                TokenTree::Literal(literal) => self.token(&literal.to_string(), literal.span(), false),
            }
        }
    }

    /// Writes one token at its place, or after the latest one if that place is taken.
    fn token(&mut self, token: &str, span: Span, joint: bool) {
        let start = span.start();
        if !self.joint {
            while self.line < start.line {
                self.written.push('\n');
                self.line += 1;
                self.column = 0;
            }
            let touches = self.end == Some(start);
            let mut spaces = start.column.saturating_sub(self.column);
            if spaces == 0 && !touches && self.column > 0 {
                spaces = 1;
            }
            self.written.extend(std::iter::repeat_n(' ', spaces));
            self.column += spaces;
        }
        self.written.push_str(token);
        for character in token.chars() {
            self.column += 1;
            if character == '\n' {
                self.line += 1;
                self.column = 0;
            }
        }
        self.end = Some(span.end());
        self.joint = joint;
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn tokens_keep_their_lines_and_lose_their_comments() {
        let source = "fn a<'x>() -> &'x str { /* one\n two */ \"s\n t\" } // end\nconst B: u8 = b'\\'' ;\n";
        let written = text(source.parse().unwrap());
        assert_eq!(written, "fn a<'x>() -> &'x str {\n        \"s\n t\" }\nconst B: u8 = b'\\'' ;\n");
    }

    #[test]
    fn doc_comments_become_attributes_before_their_item() {
        let written = text("/// It's \"it\".\npub struct A(u8, f32); #[x] //! no\n".parse().unwrap());
        let tokens: proc_macro2::TokenStream = written.parse().unwrap();
        assert!(written.contains("\npub struct A(u8, f32);"), "{written}");
        assert!(tokens.to_string().starts_with("# [doc = \" It's \\\"it\\\".\"] pub struct A"), "{tokens}");
    }

    #[test]
    fn writing_again_changes_nothing_but_places() {
        let source = include_str!("emit.rs");
        let once = text(source.parse().unwrap());
        let plain = |text: &str| text.parse::<proc_macro2::TokenStream>().unwrap().to_string();
        assert_eq!(plain(source), plain(&once));
        assert_eq!(text(once.parse().unwrap()).lines().count(), once.lines().count());
    }
}
