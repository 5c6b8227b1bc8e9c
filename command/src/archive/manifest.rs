//! The manifest of an archive: JSON that says what the archive consists of, with its own checksum.
//!
//! The checksum tells damage and careless changes; whoever can write the place can also compute it anew. So everything
//! here is checked as input from outside: names, sizes and counts.

use super::damaged;
use super::place::Place;
use super::servers::Server;
use crate::failure::{Failure, FailureKind};
use client::{Right, TableOptions, VersionState, name_is_valid};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The format of an archive of a server outside a cluster.
pub const FORMAT: u32 = 1;
/// The format of an archive of a cluster: it has `cuts`, and tables have `tablets`. The latest that this release knows.
pub const CLUSTER_FORMAT: u32 = 2;
/// Most bytes of a manifest: that of an archive of some TB.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a file, before it is compressed and after: an object more than create.rs gathers.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A manifest.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    /// SHA-256 of the archive's description as compact JSON, in hexadecimal digits.
    checksum: String,
    archive: Archive,
}

/// What manifests of each format have.
#[derive(Deserialize)]
struct Formatted {
    archive: Format,
}

/// See [`Formatted`].
#[derive(Deserialize)]
struct Format {
    format: Option<u64>,
}

/// What an archive consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    pub format: u32,
    pub tenant: String,
    /// The server's clock at the cut, in milliseconds since the Unix epoch; in a cluster the earliest one.
    pub moment_ms: u64,
    /// The number of the cut of the server's log; in a cluster of the log of the server that was asked first.
    pub cut: u64,
    /// Of a cluster, the cut of each server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
    pub tables: Vec<Table>,
    /// Tables in memory, whose objects are not here.
    pub left_out: Vec<String>,
    pub extensions: Vec<Extension>,
    /// The limits that differ from the defaults of the server.
    pub limits: Vec<Limit>,
    pub grants: Vec<Grant>,
    pub files: Vec<File>,
}

/// The cut of a server of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// The server's number.
    pub server: u32,
    pub cut: u64,
    pub moment_ms: u64,
}

impl Cut {
    /// Returns the cuts of the servers of an archive.
    pub fn of(servers: &[Server]) -> Vec<Cut> {
        let cut = |Server { begun, .. }: &Server| Cut {
            server: begun.server,
            cut: begun.cut,
            moment_ms: begun.clock_ms,
        };
        servers.iter().map(cut).collect()
    }
}

/// A table, with what the archive has of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The number by which files name it.
    pub id: u32,
    pub name: String,
    pub options: TableOptions,
    pub objects: u64,
    /// Bytes of the entries of these objects.
    pub bytes: u64,
    /// Of a cluster, the number of tablets that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tablets: Option<u32>,
}

/// An extension with its kept versions, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    pub name: String,
    pub versions: Vec<Version>,
    pub state: VersionState,
}

/// A version of an extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    pub version: u32,
    /// The file with its source.
    pub file: File,
}

/// A limit with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub name: String,
    pub value: u64,
}

/// A grant that the tenant gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub name: String,
    pub to: String,
    pub right: Right,
}

/// A file in the place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// SHA-256 of its bytes in hexadecimal digits, which is its name.
    pub checksum: String,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of its content before it was compressed.
    pub content_bytes: u64,
}

impl Archive {
    /// Returns the number of objects.
    pub fn objects(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.objects))
    }

    /// Returns the bytes of the objects' entries.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.bytes))
    }

    /// Returns the bytes of the files with objects.
    pub fn stored_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Reads and checks the manifest of an archive.
    pub fn read(place: &Place, name: &str) -> Result<Archive, Failure> {
        let bytes = place.get(&Place::manifest(name)?, MANIFEST_BYTES_MAX)?;
        Archive::decode(&bytes, name).map_err(|failure| failure.after(format!("archive {name}")))
    }

    /// Returns the bytes of the manifest.
    pub fn encode(self) -> Vec<u8> {
        let manifest = Manifest { checksum: self.checksum(), archive: self };
        serde_json::to_vec_pretty(&manifest).expect("text and numbers")
    }

    fn checksum(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("text and numbers");
        HEXLOWER.encode(&Sha256::digest(bytes))
    }

    fn decode(bytes: &[u8], name: &str) -> Result<Archive, Failure> {
        // Another format has other fields; they are passed over without a copy.
        let of = serde_json::from_slice::<Formatted>(bytes).map_err(damaged)?;
        match of.archive.format {
            Some(format) if !(u64::from(FORMAT)..=u64::from(CLUSTER_FORMAT)).contains(&format) => {
                let what =
                    format!("it has format {format}, and this release knows {FORMAT} to {CLUSTER_FORMAT}");
                return Err(Failure::new(FailureKind::Local, what).next("use the release that wrote it"));
            }
            _ => {}
        }
        let Manifest { checksum, archive } = serde_json::from_slice(bytes).map_err(damaged)?;
        if archive.checksum() != checksum {
            return Err(damaged("the manifest does not match its checksum"));
        }
        let tenant = name.split_once('/').map(|(tenant, _)| tenant);
        if tenant != Some(&*archive.tenant) {
            return Err(damaged("the manifest is of another tenant"));
        }
        archive.check()?;
        Ok(archive)
    }

    /// Checks names and sizes.
    fn check(&self) -> Result<(), Failure> {
        let extensions = self.extensions.iter().map(|extension| &extension.name);
        let grants = self.grants.iter().flat_map(|grant| [&grant.name, &grant.to]);
        let names = self.tables.iter().map(|table| &table.name).chain(extensions).chain(grants);
        let limits = self.limits.iter().map(|limit| &limit.name);
        if let Some(name) = names.chain(limits).chain([&self.tenant]).find(|name| !name_is_valid(name)) {
            return Err(damaged(format!("`{name}` is no name")));
        }
        let ids: BTreeSet<u32> = self.tables.iter().map(|table| table.id).collect();
        let names: BTreeSet<&str> = self.tables.iter().map(|table| &*table.name).collect();
        if ids.len() < self.tables.len() || names.len() < self.tables.len() {
            return Err(damaged("two tables have one name or number"));
        }
        let sources = self.extensions.iter().flat_map(|extension| &extension.versions);
        let mut files = self.files.iter().chain(sources.map(|version| &version.file));
        files.try_for_each(File::check)
    }
}

impl File {
    fn check(&self) -> Result<(), Failure> {
        let is_checksum = self.checksum.len() == 64 && HEXLOWER.decode(self.checksum.as_bytes()).is_ok();
        if !is_checksum || self.bytes > FILE_BYTES_MAX || self.content_bytes > FILE_BYTES_MAX {
            return Err(damaged(format!("`{}` is no file of an archive", self.checksum)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Archive, File, Limit, Table};
    use client::TableOptions;

    fn archive() -> Archive {
        let table = Table {
            id: 1,
            name: "t".into(),
            options: TableOptions::default(),
            objects: 2,
            bytes: 80,
            tablets: None,
        };
        let file = File { checksum: "ab".repeat(32), bytes: 50, content_bytes: 90 };
        Archive {
            format: 1,
            tenant: "acme".into(),
            moment_ms: 5,
            cut: 7,
            cuts: Vec::new(),
            tables: vec![table],
            left_out: Vec::new(),
            extensions: Vec::new(),
            limits: vec![Limit { name: "memory_bytes".into(), value: 9 }],
            grants: Vec::new(),
            files: vec![file],
        }
    }

    #[test]
    fn a_manifest_comes_back_and_a_changed_one_is_refused() {
        let bytes = archive().encode();
        assert_eq!(Archive::decode(&bytes, "acme/1").unwrap(), archive());
        assert!(Archive::decode(&bytes, "other/1").is_err());
        let text = String::from_utf8(bytes.clone()).unwrap();
        for (from, to) in
            [("\"value\": 9", "\"value\": 8"), ("\"t\"", "\"u\""), ("\"format\": 1", "\"format\": 3")]
        {
            assert!(text.contains(from));
            assert!(Archive::decode(text.replace(from, to).as_bytes(), "acme/1").is_err(), "{to}");
        }
        for cut in 0..bytes.len() {
            assert!(Archive::decode(&bytes[..cut], "acme/1").is_err());
        }
    }

    #[test]
    fn a_manifest_with_a_right_checksum_is_still_checked() {
        let with = |change: fn(&mut Archive)| {
            let mut archive = archive();
            change(&mut archive);
            Archive::decode(&archive.encode(), "acme/1")
        };
        assert!(with(|_| {}).is_ok());
        assert!(with(|archive| archive.tables[0].name = "../t".into()).is_err());
        assert!(with(|archive| archive.files[0].checksum = "../../etc/passwd".into()).is_err());
        assert!(with(|archive| archive.files[0].content_bytes = u64::MAX).is_err());
        assert!(with(|archive| archive.tables.push(archive.tables[0].clone())).is_err());
        assert!(with(|archive| archive.limits[0].name = String::new()).is_err());
    }
}
