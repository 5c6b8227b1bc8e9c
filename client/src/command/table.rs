//! `splinter table`: the tenant's tables.

use super::failure::Failure;
use super::options::TableCommand;
use super::output::{Answer, columns, thousands};
use super::settings::Settings;
use serde_json::json;

/// Runs a command about tables.
pub fn run(settings: &Settings, command: TableCommand) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    match command {
        TableCommand::Create { name } => {
            let id = client.table_create(&name)?;
            Ok(Answer::new(format!("created {name}"), json!({ "table": name, "id": id })))
        }
        TableCommand::List => {
            let tables = client.table_list()?;
            let mut rows = vec![vec!["table".to_owned(), "id".to_owned()]];
            rows.extend(tables.iter().map(|table| vec![table.name.clone(), table.id.to_string()]));
            let values: Vec<_> =
                tables.iter().map(|table| json!({ "table": table.name, "id": table.id })).collect();
            Ok(Answer::new(columns(&rows), json!(values)))
        }
        TableCommand::Drop { name } => {
            client.table_drop(&name)?;
            Ok(Answer::new(format!("dropped {name}"), json!({ "dropped": name })))
        }
        TableCommand::Stat { name } => {
            let found = client.table_stat(&name)?;
            let heads = ["table", "objects", "bytes", "index bytes"].map(str::to_owned).to_vec();
            let mut row = vec![name.clone()];
            row.extend([found.objects, found.bytes, found.index_bytes].map(thousands));
            let text = columns(&[heads, row]);
            let value = json!({
                "table": name, "id": found.id, "objects": found.objects, "bytes": found.bytes,
                "index_bytes": found.index_bytes,
            });
            Ok(Answer::new(text, value))
        }
    }
}
