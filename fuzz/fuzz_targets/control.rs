//! Fuzzes the decoding of administrative requests and replies.
//!
//! No bytes make a decoder panic, and a decoded message survives another round trip.
#![no_main]

use std::fmt::Debug;

use control::{
    AdminRequest, AuditEntry, ClusterStatus, DeserializeOwned, ExtensionDescription, ExtensionEntry,
    MigrationProgress, ServerEntry, TableEntry, TenantLimitEntry, Traces,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;

fn reply<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(reply) = control::decode::<T>(bytes) {
        assert_eq!(control::decode::<T>(&control::encode(&reply)), Ok(reply));
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = AdminRequest::decode(bytes) {
        let body = request.encode().expect("it was decoded, so it is within the limits");
        assert_eq!(AdminRequest::decode(&body).as_ref(), Ok(&request));
    }
    reply::<Vec<TableEntry>>(bytes);
    reply::<Vec<ServerEntry>>(bytes);
    reply::<Vec<ExtensionEntry>>(bytes);
    reply::<Vec<TenantLimitEntry>>(bytes);
    reply::<Vec<MigrationProgress>>(bytes);
    reply::<Vec<AuditEntry>>(bytes);
    reply::<ExtensionDescription>(bytes);
    reply::<ClusterStatus>(bytes);
    reply::<Traces>(bytes);
});
