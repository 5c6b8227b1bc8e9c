//! Archives in a bucket of an S3 server: moto, which the test starts. `scripts/test --full` installs it and names its
//! Python interpreter in `SPLINTER_MOTO`; without that nothing is tested here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use client::Durability;
use tests::patience::comes;

use super::{all, archive, create, fill, name_of, start};

/// An S3 server on a port of this host; ends when dropped.
struct Bucket {
    server: Child,
    address: String,
}

impl Bucket {
    /// Starts a server and makes the bucket `archives`.
    fn start(python: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let port = address.rsplit(':').next().expect("a port");
        let server = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let bucket = Self { server: server.expect("moto runs"), address };
        comes("the bucket is made", || bucket.make());
        bucket
    }

    fn make(&self) -> Option<()> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let host = &self.address;
        let request = format!(
            "PUT /archives HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1).filter(|status| *status == "200").map(|_| ())
    }

    /// Adds what the command needs to know.
    fn known_to(&self, mut command: Command) -> Command {
        command
            .env("AWS_ENDPOINT", format!("http://{}", self.address))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test");
        command
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn an_archive_in_a_bucket_comes_back() {
    let Ok(python) = std::env::var("SPLINTER_MOTO") else {
        println!("SPLINTER_MOTO names no Python interpreter with moto: left out");
        return;
    };
    let (server, bucket) = (start(), Bucket::start(&python));
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = create(&mut client, "data", Durability::Synced, true);
    fill(&mut client, table);
    let command = || bucket.known_to(server.command(&ann));
    let place = "s3://archives/some/where";
    let created = archive(command(), &["create", "--to", place]).expect("an archive");
    assert!(created[0]["sent_bytes"].as_u64() > Some(0));
    let again = archive(command(), &["create", "--to", place]).expect("another");
    assert_eq!(again[0]["sent_bytes"], 0, "nothing has changed");
    let listed = archive(command(), &["list", "--from", place]).expect("a list");
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    archive(command(), &["verify", "--from", place]).expect("it is whole");
    let before = all(&mut client, "data");
    client.table_drop("data").expect("it is there");
    let name = name_of(&created);
    archive(command(), &["restore", &name, "--from", place]).expect("it is restored");
    assert_eq!(all(&mut client, "data"), before);
    let (code, _) =
        archive(command(), &["list", "--from", "s3://nothing"]).expect_err("there is no such bucket");
    assert_eq!(code, Some(1));
}
