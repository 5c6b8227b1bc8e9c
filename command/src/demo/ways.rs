//! The methods that the demo compares, each with its own session.

use super::local::LocalWay;
use super::question::{Functions, Way};
use super::remote::RemoteWay;
use crate::failure::Failure;
use crate::settings::Settings;
use client::Client;

/// All three methods, each with its own session.
pub struct Ways {
    /// In the order of the report; the answers of the others are compared with those of the first.
    pub all: Vec<Box<dyn Way>>,
}

impl Ways {
    /// Opens a session for each method.
    pub fn open(settings: &Settings, mut client: Client) -> Result<Ways, Failure> {
        let functions = Functions::resolve(&mut client)?;
        let extension = RemoteWay::new(settings.connect()?.into_session(), functions.clone(), false);
        let hybrid = RemoteWay::new(settings.connect()?.into_session(), functions, true);
        let local = LocalWay::new(client.into_session());
        Ok(Ways { all: vec![Box::new(local), Box::new(extension), Box::new(hybrid)] })
    }
}
