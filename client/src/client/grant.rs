//! Grants: letting other tenants use tables and extensions.

use control::{AdminRequest, GrantEntry, Right, Subject};

use super::Client;
use crate::Error;

impl Client {
    /// Grants another tenant a right on a table or an extension. Replaces an earlier grant. The other tenant calls the
    /// table or extension `owner/name`.
    ///
    /// # Errors
    /// `UnknownTable`, `UnknownExtension`, `UnknownTenant`, another refusal, or no reply.
    pub fn grant(&mut self, name: &str, to: &str, right: Right) -> Result<(), Error> {
        self.session.administer(&AdminRequest::GrantCreate { name, to, right })
    }

    /// Lists the grants that the tenant gave and got.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn grant_list(&mut self) -> Result<Vec<GrantEntry>, Error> {
        self.session.administer(&AdminRequest::GrantList)
    }

    /// Revokes a grant; on return all cores of the server refuse it.
    ///
    /// # Errors
    /// `NotFound` if that tenant has no such grant, another refusal, or no reply.
    pub fn grant_revoke(&mut self, subject: Subject, name: &str, to: &str) -> Result<(), Error> {
        self.session.administer(&AdminRequest::GrantRevoke { subject, name, to })
    }
}
