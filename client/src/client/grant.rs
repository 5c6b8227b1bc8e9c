//! Grants: letting other tenants use tables and extensions.

use wire::{AdminRequest, GrantEntry, Right, Subject};

use super::{Client, administer};
use crate::Error;

impl Client {
    /// Lets another tenant use a table or an extension, in place of what was granted before. The other tenant
    /// calls it `owner/name`.
    ///
    /// # Errors
    /// `UnknownTable`, `UnknownExtension`, `UnknownTenant`, another refusal, or no answer.
    pub fn grant(&mut self, name: &str, to: &str, right: Right) -> Result<(), Error> {
        administer(&mut self.session, &AdminRequest::GrantCreate { name, to, right })
    }

    /// Lists what the tenant has granted and what is granted to it.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn grant_list(&mut self) -> Result<Vec<GrantEntry>, Error> {
        administer(&mut self.session, &AdminRequest::GrantList)
    }

    /// Takes a grant back: when this returns, no core of the server honours it any more.
    ///
    /// # Errors
    /// `NotFound` when that tenant has no such grant, another refusal, or no answer.
    pub fn grant_revoke(&mut self, subject: Subject, name: &str, to: &str) -> Result<(), Error> {
        administer(&mut self.session, &AdminRequest::GrantRevoke { subject, name, to })
    }
}
