//! The place of the metadata: a file of this server, or an etcd that a cluster shares.

use std::fmt;

use wire::name_is_valid;

use super::ConfigError;

/// The port of an etcd member if none is given.
const ETCD_PORT: u16 = 2379;

/// The place of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MetadataPlace {
    /// A file in the data directory: the server is not in a cluster.
    #[default]
    File,
    /// An etcd: the server belongs to a cluster.
    Etcd(EtcdAddress),
}

/// An etcd and the name of a cluster in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    /// Members of the etcd, as `host:port`.
    pub members: Vec<String>,
    /// Name of the cluster; several clusters can share an etcd.
    pub cluster: String,
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "etcd://{}/{}", self.members.join(","), self.cluster)
    }
}

/// Parses the place of the metadata: `file`, `etcd://host:port[,host:port]/CLUSTER`.
///
/// # Errors
/// A description of the problem.
pub fn parse_metadata_place(text: &str) -> Result<MetadataPlace, ConfigError> {
    let refuse = |why: &str| {
        Err(ConfigError(format!("`{text}` {why}: use file or etcd://HOST:PORT[,HOST:PORT]/CLUSTER")))
    };
    if text == "file" {
        return Ok(MetadataPlace::File);
    }
    let Some(rest) = text.strip_prefix("etcd://") else { return refuse("is not a place for metadata") };
    let Some((members, cluster)) = rest.split_once('/') else { return refuse("names no cluster") };
    if !name_is_valid(cluster) {
        return refuse("has an empty or invalid cluster name (allowed: letters, digits, `_`, `-`, `.`)");
    }
    let members: Option<Vec<String>> = members.split(',').map(member).collect();
    let Some(members) = members else { return refuse("names an invalid member") };
    Ok(MetadataPlace::Etcd(EtcdAddress { members, cluster: cluster.to_owned() }))
}

/// Returns a member with its port.
fn member(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address has its colons in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, ETCD_PORT),
    };
    let in_brackets = host.starts_with('[') && host.ends_with(']');
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let of_address = |byte: u8| known(byte) || matches!(byte, b':' | b'[' | b']');
    let valid =
        !host.is_empty() && host.bytes().all(|byte| if in_brackets { of_address(byte) } else { known(byte) });
    valid.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::{EtcdAddress, MetadataPlace, parse_metadata_place};

    #[test]
    fn places_are_read_as_people_write_them() {
        assert_eq!(parse_metadata_place("file"), Ok(MetadataPlace::File));
        let etcd = |members: &[&str]| {
            let members = members.iter().map(|member| (*member).to_owned()).collect();
            Ok(MetadataPlace::Etcd(EtcdAddress { members, cluster: "c1".to_owned() }))
        };
        assert_eq!(parse_metadata_place("etcd://127.0.0.1:7/c1"), etcd(&["127.0.0.1:7"]));
        assert_eq!(
            parse_metadata_place("etcd://a.example,[::1]:9,[::1]/c1"),
            etcd(&["a.example:2379", "[::1]:9", "[::1]:2379"])
        );
        for text in [
            "",
            "etcd",
            "http://a/c1",
            "etcd://a",
            "etcd://a/",
            "etcd:///c1",
            "etcd://a,/c1",
            "etcd://a:x/c1",
            "etcd://a:70000/c1",
            "etcd://a/c1/d",
            "etcd://a b/c1",
            "etcd://::1:9/c1",
            "etcd://u@a/c1",
        ] {
            let refused = parse_metadata_place(text).expect_err(text);
            assert!(refused.0.contains("CLUSTER"), "{refused}");
        }
    }
}
