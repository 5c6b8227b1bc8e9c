//! Log lines of extensions through the whole server: by level, by extension, behind a line, to their tenant.

use control::{AdminRequest, LogLines};
use wire::Status;

use super::client::Client;
use super::extensions::{install, invoke, package};
use super::{Site, file};

/// Logs the length of its arguments, the first byte being the level.
pub const TALKER: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Level, Reply};

sandstorm::extension! { write say }

/// Logs.
///
/// Arguments: level u8, text
async fn say(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let level = match reader.u8()? {
        0 => Level::Error,
        1 => Level::Warning,
        2 => Level::Information,
        _ => Level::Debug,
    };
    db.log(level, format_args!("{} bytes", reader.rest().len()));
    Ok(())
}
"#;

pub fn read(client: &mut Client, name: &str, level: u8, after: u64) -> LogLines {
    let request = AdminRequest::ExtensionLogs { name, level, after, count: 100 };
    control::decode::<LogLines>(&client.control.ask(&request).expect("installed")).expect("lines")
}

fn texts(lines: &LogLines) -> Vec<&str> {
    lines.lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn lines_are_read_by_extension_and_level_and_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let first = install(&mut ann, "first", &package(TALKER)).expect("a good extension").extension;
    let second = install(&mut ann, "second", &package(TALKER)).expect("a good extension").extension;
    install(&mut bob, "first", &package(TALKER)).expect("a good extension");
    for (extension, arguments) in
        [(first, &[3][..]), (first, &[1, 0]), (second, &[0, 0, 0]), (first, &[0, 0, 0, 0])]
    {
        assert_eq!(ann.status(&invoke(extension, "say", table, arguments)), Status::Ok);
    }
    let all = read(&mut ann, "first", 3, 0);
    assert_eq!(texts(&all), ["0 bytes", "1 bytes", "3 bytes"]);
    let levels: Vec<_> = all.lines.iter().map(|line| (line.level, line.version)).collect();
    assert_eq!((levels, all.looked_at, all.missed), (vec![(3, 1), (1, 1), (0, 1)], 4, 0));
    assert_eq!(texts(&read(&mut ann, "first", 1, 0)), ["1 bytes", "3 bytes"]);
    assert_eq!(texts(&read(&mut ann, "second", 3, 0)), ["2 bytes"]);
    assert_eq!(read(&mut ann, "first", 3, all.looked_at).lines, []);
    assert_eq!(ann.status(&invoke(second, "say", table, &[2])), Status::Ok);
    assert_eq!(ann.status(&invoke(first, "say", table, &[2])), Status::Ok);
    let more = read(&mut ann, "first", 3, all.looked_at);
    assert_eq!((texts(&more), more.looked_at), (vec!["0 bytes"], 6));
    assert_eq!(read(&mut bob, "first", 3, 0).lines, [], "a tenant reads its own");
    let unknown = AdminRequest::ExtensionLogs { name: "second", level: 3, after: 0, count: 1 };
    assert_eq!(bob.control.ask(&unknown).expect_err("ann's").0, Status::UnknownExtension);
}
