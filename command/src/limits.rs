//! `splinter tenant limits`: shows and changes the limits of a tenant.
//!
//! In JSON, `null` means unlimited, and a limit whose values are words has a list of them instead of a range.

use super::failure::Failure;
use super::options::{Setting, UNITS, UNLIMITED};
use super::output::{Answer, table_of, thousands};
use super::settings::Settings;
use client::{LimitChange, TenantLimitEntry, limit_word, limit_words};
use serde_json::{Value, json};

/// Changes limits of a tenant and shows all of them; without a name, those of the caller.
pub fn run(
    settings: &Settings,
    name: Option<&str>,
    set: &[Setting],
    reset: &[String],
    force: bool,
) -> Result<Answer, Failure> {
    let Some(name) = name else { return Ok(table(&settings.connect()?.limits()?)) };
    let mut admin = settings.connect_admin()?;
    let set = set.iter().map(|setting| LimitChange { limit: &setting.limit, value: Some(setting.value) });
    let reset = reset.iter().map(|limit| LimitChange { limit, value: None });
    let changes: Vec<LimitChange<'_>> = set.chain(reset).collect();
    let limits = if changes.is_empty() {
        admin.tenant_limits(name)?
    } else if force {
        admin.tenant_limits_force(name, &changes)?
    } else {
        admin.tenant_limits_set(name, &changes)?
    };
    Ok(table(&limits))
}

fn table(limits: &[TenantLimitEntry]) -> Answer {
    let heads = ["limit", "value", "default", "range"];
    Answer::new(table_of(&heads, limits.iter().map(row)), limits.iter().map(value).collect())
}

fn row(limit: &TenantLimitEntry) -> Vec<String> {
    let text = |amount: u64| text_of(&limit.name, amount);
    let range = match words_of(limit) {
        Some(words) => words.join(", "),
        None => format!("{} to {}", text(limit.least), text(limit.most)),
    };
    vec![limit.name.clone(), text(limit.value), text(limit.default), range]
}

/// Formats the amount of a limit as text.
pub fn text_of(limit: &str, amount: u64) -> String {
    if let Some(word) = limit_word(limit, amount) {
        return word.to_owned();
    }
    match amount {
        UNLIMITED => "unlimited".to_owned(),
        amount if limit.ends_with("_bytes") => with_unit(amount),
        amount => thousands(amount),
    }
}

/// Returns the amount of a limit as JSON.
pub fn number(amount: u64) -> Option<u64> {
    (amount != UNLIMITED).then_some(amount)
}

/// Returns the words that a limit accepts, if its values are words.
fn words_of(limit: &TenantLimitEntry) -> Option<&'static [&'static str]> {
    let (least, most) = (usize::try_from(limit.least).ok()?, usize::try_from(limit.most).ok()?);
    limit_words(&limit.name)?.get(least..=most)
}

fn value(limit: &TenantLimitEntry) -> Value {
    if let Some(words) = words_of(limit) {
        let text = |amount| text_of(&limit.name, amount);
        return json!({
            "limit": limit.name, "value": text(limit.value), "default": text(limit.default), "values": words,
        });
    }
    json!({
        "limit": limit.name, "value": number(limit.value), "default": number(limit.default),
        "least": limit.least, "most": number(limit.most),
    })
}

/// Formats bytes in the largest unit that divides them, as the command line accepts them.
fn with_unit(bytes: u64) -> String {
    let scale = (bytes.trailing_zeros() as usize / 10).min(UNITS.len() - 1);
    match (bytes, scale) {
        (0, _) => "0".to_owned(),
        (_, 0) => thousands(bytes),
        (_, scale) => format!("{}{}", thousands(bytes >> (10 * scale)), UNITS[scale]),
    }
}

#[cfg(test)]
mod tests {
    use super::{row, value, with_unit};
    use client::TenantLimitEntry;
    use serde_json::json;

    #[test]
    fn bytes_are_shown_as_they_can_be_given() {
        let texts = [0, 1000, 1024, 64 << 20, (64 << 20) + 1, 1 << 50].map(with_unit);
        assert_eq!(texts, ["0", "1,000", "1KiB", "64MiB", "67,108,865", "1,024TiB"]);
    }

    #[test]
    fn a_limit_that_is_none_is_unlimited_and_null() {
        let name = "memory_bytes".to_owned();
        let limit = TenantLimitEntry { name, value: 1 << 30, default: u64::MAX, least: 0, most: u64::MAX };
        assert_eq!(row(&limit), ["memory_bytes", "1GiB", "unlimited", "0 to unlimited"]);
        assert_eq!(value(&limit)["value"], 1 << 30);
        assert!(value(&limit)["default"].is_null());
    }

    #[test]
    fn the_form_of_invocations_is_shown_by_its_word() {
        let limit = TenantLimitEntry { name: "sandbox".to_owned(), value: 1, default: 0, least: 0, most: 1 };
        assert_eq!(row(&limit), ["sandbox", "wasm", "native", "native, wasm"]);
        let expected = json!({
            "limit": "sandbox", "value": "wasm", "default": "native", "values": ["native", "wasm"],
        });
        assert_eq!(value(&limit), expected);
        let newer = TenantLimitEntry { value: 2, most: 2, ..limit };
        assert_eq!(row(&newer), ["sandbox", "2", "native", "native to 2"], "of a newer server");
    }
}
