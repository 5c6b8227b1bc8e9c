//! Reads `functions.toml`, in which the author of a finished module lists its functions.
//!
//! ```toml
//! border = 1
//!
//! [[function]]
//! name = "get"
//! mode = "read"
//! doc = "Replies with the value under the key."
//! ```
//!
//! A source says the same with `sandstorm::extension!` and doc comments. `border` is the version of the border that the
//! module was written for, so that a server with another one refuses it instead of running it wrongly.

use std::ops::Range;

use toml::de::DeTable;
use toml::de::DeValue;

use crate::Function;
use crate::Mode;
use crate::Refusal;
use crate::limits;
use crate::module::wasm32::BORDER_VERSION;
use crate::package::FUNCTIONS;
use crate::refusal::position;

const INSTEAD: &str = "write [[function]] with name, mode and doc, once for each function";

/// Returns the functions of a list.
///
/// # Errors
/// Everything in it that is not of the shape above.
pub(crate) fn parse(text: &str) -> Result<Vec<Function>, Vec<Refusal>> {
    let mut reader = ListReader { text, refusals: Vec::new() };
    let functions = match DeTable::parse(text) {
        Ok(table) => reader.list(table.get_ref()),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            reader.refuse(span, format!("the list is no TOML: {}", error.message()), "mend it");
            Vec::new()
        }
    };
    if reader.refusals.is_empty() { Ok(functions) } else { Err(reader.refusals) }
}

struct ListReader<'t> {
    text: &'t str,
    refusals: Vec<Refusal>,
}

impl ListReader<'_> {
    fn refuse(&mut self, span: Range<usize>, what: impl Into<String>, instead: &str) {
        if self.refusals.len() < limits::REFUSALS_MAX {
            let (line, column) = position(self.text, span.start);
            self.refusals.push(Refusal::at(FUNCTIONS, line, column, what, instead));
        }
    }

    fn list(&mut self, table: &DeTable<'_>) -> Vec<Function> {
        let wanted = format!("border = {BORDER_VERSION}");
        let mut functions: Vec<Function> = Vec::new();
        let mut border_is_named = false;
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("border", DeValue::Integer(version)) => {
                    border_is_named = true;
                    if version.as_str() != BORDER_VERSION.to_string() {
                        let what = format!("border {} is not this server's", version.as_str());
                        let instead = format!("build for {wanted}, as docs/modules.md describes it");
                        self.refuse(value.span(), what, &instead);
                    }
                }
                ("function", DeValue::Array(list)) => {
                    for function in list.iter() {
                        match function.get_ref() {
                            DeValue::Table(table) => {
                                self.function(function.span(), table, &mut functions);
                            }
                            _ => self.refuse(function.span(), "this is no function", INSTEAD),
                        }
                    }
                }
                (name, _) => {
                    let name: String = name.chars().take(limits::NAME_BYTES_MAX).collect();
                    self.refuse(key.span(), format!("the list has no {name:?} of this type"), INSTEAD);
                }
            }
        }
        if !border_is_named && self.refusals.is_empty() {
            self.refuse(0..0, "the list does not say for which border the module is", &wanted);
        }
        if !(1..=limits::FUNCTIONS_MAX).contains(&functions.len()) && self.refusals.is_empty() {
            let what = format!("the list has {} functions", functions.len());
            self.refuse(0..0, what, "list 1 to 64 functions");
        }
        functions
    }

    fn function(&mut self, span: Range<usize>, table: &DeTable<'_>, functions: &mut Vec<Function>) {
        let (mut name, mut mode, mut doc) = (None, None, String::new());
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("name", DeValue::String(given)) => name = Some(given.to_string()),
                ("mode", DeValue::String(given)) if &**given == "read" => mode = Some(Mode::Read),
                ("mode", DeValue::String(given)) if &**given == "write" => mode = Some(Mode::Write),
                ("mode", _) => {
                    return self.refuse(value.span(), "a function is \"read\" or \"write\"", INSTEAD);
                }
                ("doc", DeValue::String(given)) => doc = given.trim().to_string(),
                (other, _) => {
                    let other: String = other.chars().take(limits::NAME_BYTES_MAX).collect();
                    return self.refuse(key.span(), format!("a function has no {other:?}"), INSTEAD);
                }
            }
        }
        let (Some(name), Some(mode)) = (name, mode) else {
            return self.refuse(span, "the function has no name or no mode", INSTEAD);
        };
        if !is_identifier(&name) || functions.iter().any(|function| function.name == name) {
            let what = "this is no name for a function, or there twice";
            return self.refuse(span, what, "use letters, digits and _, at most 64, no digit first, once");
        }
        functions.push(Function { name, mode, doc });
    }
}

fn is_identifier(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let first = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    letters && first && name.len() <= limits::NAME_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::Mode;

    #[test]
    fn a_list_names_functions_with_their_modes_and_docs() {
        let functions = parse(
            "border = 1\n[[function]]\nname = \"get\"\nmode = \"read\"\n\
             doc = \"\"\"\nGets.\nArguments: none\n\"\"\"\n[[function]]\nname = \"put_2\"\nmode = \"write\"\n",
        )
        .unwrap();
        assert_eq!(functions.len(), 2);
        assert_eq!((&*functions[0].name, functions[0].mode), ("get", Mode::Read));
        assert_eq!(functions[0].doc, "Gets.\nArguments: none");
        assert_eq!((&*functions[1].name, functions[1].mode, &*functions[1].doc), ("put_2", Mode::Write, ""));
    }

    #[test]
    fn anything_else_is_refused_at_its_place() {
        let one = "[[function]]\nname = \"f\"\nmode = \"read\"\n";
        for (text, expected) in [
            ("", "does not say for which border the module is; instead, border = 1"),
            ("border = 1", "the list has 0 functions"),
            ("border = 2\n", "functions.toml:1:10: border 2 is not this server's"),
            ("border = \"1\"\n", "functions.toml:1:1: the list has no \"border\" of this type"),
            ("border = 1\nfunction = 3\n", "functions.toml:2:1: the list has no \"function\" of this type"),
            ("border = 1\nfunction = [3]\n", "this is no function"),
            ("border = 1\nabi = 3\n", "the list has no \"abi\""),
            ("border = 1\n[[function]]\nname = \"f\"\n", "no name or no mode"),
            ("border = 1\n[[function]]\nmode = \"read\"\n", "no name or no mode"),
            ("border = 1\n[[function]]\nname = \"f\"\nmode = \"rw\"\n", "functions.toml:4:8: a function is"),
            (
                "border = 1\n[[function]]\nname = \"f\"\nmode = \"read\"\nargs = 1\n",
                "a function has no \"args\"",
            ),
            ("border = 1\n[[function]]\nname = \"f-g\"\nmode = \"read\"\n", "no name for a function"),
            ("border = 1\n[[function]]\nname = \"1\"\nmode = \"read\"\n", "no name for a function"),
            ("border =\n", "the list is no TOML"),
            (&format!("border = 1\n{}", one.repeat(2)), "or there twice"),
            (&format!("border = 1\n{}", one.repeat(200)), "or there twice"),
        ] {
            let refusals = parse(text).unwrap_err();
            assert!(refusals[0].to_string().contains(expected), "{text}: {}", refusals[0]);
        }
        let many: String =
            (0..65).map(|n| format!("[[function]]\nname = \"f{n}\"\nmode = \"read\"\n")).collect();
        let refusals = parse(&format!("border = 1\n{many}")).unwrap_err();
        assert!(refusals[0].to_string().contains("the list has 65 functions"));
    }
}
