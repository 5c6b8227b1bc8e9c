//! Extensions: installation, versions, invocation.

use control::{
    AdminRequest, DeserializeOwned, ExtensionDescription, ExtensionEntry, ExtensionInstalled,
    ExtensionModule, ExtensionResolved, FunctionMode, LogLines, PackageFile, Placement, Traces, VersionState,
};
use wire::Status;

use super::Client;
use crate::Error;
use crate::answers::unintelligible;
use crate::function::Function;
use crate::limits::{MODULE_BYTES_MAX, MODULE_PIECE_BYTES_MIN};

impl Client {
    /// Calls a function by name and returns its reply. It runs at the server, or where `Client::run_functions` says. The
    /// name is `extension.function`, which uses the current version, or `extension@version.function`; another tenant's
    /// extension is named `owner/extension`. Names are looked up once.
    ///
    /// # Errors
    /// [`Error::ExtensionFailed`] if the function ended with an error, the server's refusal, or no reply.
    pub fn invoke(&mut self, name: &str, table: u32, key: &[u8], arguments: &[u8]) -> Result<Vec<u8>, Error> {
        let known = self.functions.contains_key(name);
        match self.invoke_known(name, table, key, arguments) {
            // Since the lookup it was removed, or reinstalled under another id; it was not executed.
            Err(Error::Refused { status: Status::UnknownExtension | Status::UnknownFunction, .. })
                if known =>
            {
                self.functions.remove(name);
                #[cfg(feature = "modules")]
                self.forget_placed(|function| function == name);
                self.invoke_known(name, table, key, arguments)
            }
            answer => answer,
        }
    }

    /// Calls a function whose numbers may be of an earlier lookup.
    fn invoke_known(
        &mut self,
        name: &str,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        #[cfg(feature = "modules")]
        if let Some(function) = self.function_to_run(name)? {
            return self.invoke_placed(&function, table, key, arguments);
        }
        let function = self.resolve(name)?;
        self.invoke_function(function, table, key, arguments)
    }

    /// Calls a function that was resolved before.
    ///
    /// # Errors
    /// As [`Client::invoke`].
    pub fn invoke_function(
        &mut self,
        function: Function,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let request = function.request(table, key, arguments);
        match self.call(&request).map(<[u8]>::to_vec) {
            // A function that only reads may be called again in the new session.
            Err(Error::SessionLost) if function.only_reads() => self.call(&request).map(<[u8]>::to_vec),
            answer => answer,
        }
    }

    /// Looks up the numbers to invoke a function. Asks the server only the first time.
    ///
    /// # Errors
    /// [`Error::FunctionNameInvalid`], `UnknownExtension`, `UnknownFunction`, or no reply.
    pub fn resolve(&mut self, name: &str) -> Result<Function, Error> {
        if let Some(function) = self.functions.get(name) {
            return Ok(*function);
        }
        let (extension, version, function) =
            split_function_name(name).ok_or_else(|| Error::FunctionNameInvalid { name: name.to_owned() })?;
        let request = AdminRequest::ExtensionResolve { name: extension };
        let resolved = self.session.administer::<ExtensionResolved>(&request)?;
        let entry = resolved.functions.iter().find(|entry| entry.name == function);
        let (hash, mode) = match (entry, version) {
            (Some(entry), _) => (entry.hash, entry.mode),
            // An older version may have functions that the current one lacks.
            (None, 1..) => (wire::function_hash(function), FunctionMode::Write),
            (None, 0) => {
                let names: Vec<_> = resolved.functions.iter().map(|entry| entry.name.as_str()).collect();
                let text = format!("the functions of {extension} are {}.", names.join(", "));
                return Err(Error::Refused { status: Status::UnknownFunction, text });
            }
        };
        let found = Function { extension: resolved.extension, version, function: hash, mode };
        self.functions.insert(name.to_owned(), found);
        Ok(found)
    }

    /// Compiles and installs an extension from its source. An existing name gets a new version, which becomes current.
    /// Waits for the compiler.
    ///
    /// # Errors
    /// `SourceRefused` and `CompileFailed` with the required corrections, another refusal, or no reply.
    pub fn extension_install(
        &mut self,
        name: &str,
        files: Vec<PackageFile<'_>>,
    ) -> Result<ExtensionInstalled, Error> {
        self.extension_install_as(name, files, Placement::Current)
    }

    /// Installs a version for the invocations that `placement` selects.
    ///
    /// # Errors
    /// As [`Client::extension_install`].
    pub fn extension_install_as(
        &mut self,
        name: &str,
        files: Vec<PackageFile<'_>>,
        placement: Placement,
    ) -> Result<ExtensionInstalled, Error> {
        let request = AdminRequest::ExtensionInstall { name, files, placement };
        self.administer_extension(name, &request)
    }

    /// Lists the tenant's extensions.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn extension_list(&mut self) -> Result<Vec<ExtensionEntry>, Error> {
        self.session.administer(&AdminRequest::ExtensionList)
    }

    /// Describes an extension. For a granted one, `tenant/name`, omits its versions and their costs.
    ///
    /// # Errors
    /// `UnknownExtension`, another refusal, or no reply.
    pub fn extension_describe(&mut self, name: &str) -> Result<ExtensionDescription, Error> {
        self.session.administer(&AdminRequest::ExtensionDescribe { name })
    }

    /// Reads the module of a version, 0 for the current one, to run it in this program.
    ///
    /// # Errors
    /// `UnknownExtension`, `NotFound` for an unknown version, `NotPermitted` for an extension that was granted, `Unavailable` with the
    /// reason if the version has no module, another refusal, or no reply.
    pub fn extension_module(&mut self, name: &str, version: u32) -> Result<ExtensionModule, Error> {
        let piece = |version, from| AdminRequest::ExtensionModule { name, version, from };
        let mut module = self.session.administer::<ExtensionModule>(&piece(version, 0))?;
        if module.all_bytes > MODULE_BYTES_MAX {
            return Err(unintelligible("a module"));
        }
        loop {
            let from = module.bytes.0.len() as u64;
            if from >= module.all_bytes {
                return Ok(module);
            }
            let next = self.session.administer::<ExtensionModule>(&piece(module.version, from))?;
            let is_piece = next.bytes.0.len() as u64 >= (module.all_bytes - from).min(MODULE_PIECE_BYTES_MIN);
            if next.sha256 != module.sha256 || !is_piece {
                return Err(unintelligible("a piece of the module"));
            }
            module.bytes.0.extend(next.bytes.0);
        }
    }

    /// Removes an extension with all its versions.
    ///
    /// # Errors
    /// `UnknownExtension`, another refusal, or no reply.
    pub fn extension_remove(&mut self, name: &str) -> Result<(), Error> {
        self.administer_extension(name, &AdminRequest::ExtensionRemove { name, version: 0 })
    }

    /// Removes one version of an extension. It must be neither current nor canary.
    ///
    /// # Errors
    /// `UnknownExtension`, `NotPermitted`, another refusal, or no reply.
    pub fn extension_remove_version(&mut self, name: &str, version: u32) -> Result<(), Error> {
        self.administer_extension(name, &AdminRequest::ExtensionRemove { name, version })
    }

    /// Makes an earlier version current. `None` ends the canary or, without one, selects the version before the current
    /// one.
    ///
    /// # Errors
    /// `UnknownExtension`, `NotFound` if there is no earlier version, another refusal, or no reply.
    pub fn extension_roll_back(&mut self, name: &str, to: Option<u32>) -> Result<VersionState, Error> {
        let version = to.unwrap_or(0);
        self.administer_extension(name, &AdminRequest::ExtensionRollback { name, version })
    }

    /// Makes a version current and keeps it current across installations. `None` removes the pin.
    ///
    /// # Errors
    /// `UnknownExtension`, another refusal, or no reply.
    pub fn extension_pin(&mut self, name: &str, version: Option<u32>) -> Result<VersionState, Error> {
        let version = version.unwrap_or(0);
        self.administer_extension(name, &AdminRequest::ExtensionPin { name, version })
    }

    /// Makes the canary current.
    ///
    /// # Errors
    /// `UnknownExtension`, `NotFound` if there is no canary, another refusal, or no reply.
    pub fn extension_promote(&mut self, name: &str) -> Result<VersionState, Error> {
        self.administer_extension(name, &AdminRequest::ExtensionPromote { name })
    }

    /// Reads an extension's log up to a level, oldest line first. Levels: 0 error, 1 warning, 2 information, 3 debug.
    /// Returns the oldest lines after line `after`, at most `count`; with `after` 0 the newest.
    ///
    /// # Errors
    /// `UnknownExtension`, another refusal, or no reply.
    pub fn extension_logs(
        &mut self,
        name: &str,
        level: u8,
        after: u64,
        count: u32,
    ) -> Result<LogLines, Error> {
        self.session.administer(&AdminRequest::ExtensionLogs { name, level, after, count })
    }

    /// Traces invocations of an extension for some seconds, and reads the traces. Takes only those of `function`, if
    /// given, that took at least `slower_than_us`. Returns traces after `after`; `u64::MAX` means only future ones.
    ///
    /// # Errors
    /// `UnknownExtension`, `UnknownFunction`, `LimitExceeded` while the tenant traces something else, another refusal,
    /// or no reply.
    pub fn extension_traces(
        &mut self,
        name: &str,
        function: Option<&str>,
        slower_than_us: u64,
        after: u64,
    ) -> Result<Traces, Error> {
        let function = function.map(wire::function_hash);
        let request = AdminRequest::ExtensionTraces { name, function, slower_than_us, after };
        self.session.administer(&request)
    }

    /// Ends the tracing of an extension, which otherwise continues for some seconds.
    ///
    /// # Errors
    /// `UnknownExtension`, another refusal, or no reply.
    pub fn extension_traces_end(&mut self, name: &str) -> Result<(), Error> {
        self.session.administer(&AdminRequest::ExtensionTracesEnd { name })
    }

    /// Makes a request that may change functions, and removes the cached ones.
    fn administer_extension<T: DeserializeOwned>(
        &mut self,
        name: &str,
        request: &AdminRequest<'_>,
    ) -> Result<T, Error> {
        let answer = self.session.administer(request);
        let is_its = |function: &str| split_function_name(function).is_some_and(|(of, ..)| of == name);
        self.functions.retain(|function, _| !is_its(function));
        #[cfg(feature = "modules")]
        self.forget_placed(is_its);
        answer
    }
}

/// Splits `extension.function` or `extension@version.function`; returns version 0 if none is given. The function
/// follows the last dot, because the name of an extension may contain dots.
#[must_use]
pub fn split_function_name(name: &str) -> Option<(&str, u32, &str)> {
    let (extension, function) = name.rsplit_once('.')?;
    let (extension, version) = match extension.split_once('@') {
        Some((extension, version)) => (extension, version.parse().ok().filter(|&version| version > 0)?),
        None => (extension, 0),
    };
    (!extension.is_empty() && !function.is_empty()).then_some((extension, version, function))
}

#[cfg(test)]
mod tests {
    use super::split_function_name as split;

    #[test]
    fn function_names_have_extension_version_and_function() {
        assert_eq!(split("tao.assoc_range"), Some(("tao", 0, "assoc_range")));
        assert_eq!(split("tao@3.assoc_range"), Some(("tao", 3, "assoc_range")));
        assert_eq!(split("my.tao.get"), Some(("my.tao", 0, "get")));
        assert_eq!(split("acme/tao@2.get"), Some(("acme/tao", 2, "get")));
        for wrong in ["", "tao", ".get", "tao.", "tao@0.get", "tao@x.get", "@1.get"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}
