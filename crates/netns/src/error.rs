//! The error of this crate.

use std::io;

/// Why the namespaces or the emulator could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The kernel refuses user namespaces to this user.
    #[error(
        "this system gives no user namespace to an unprivileged process ({0}): run as root, or see the sysctls \
         user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
    )]
    UserNamespace(#[source] io::Error),
    /// A user namespace is needed, and the process has more than one thread already.
    #[error("create the namespaces before the process starts its first thread")]
    Threads,
    /// The process has the capabilities, yet the kernel gives it no network namespace.
    #[error("network namespaces are not permitted for this process ({0})")]
    NetworkNamespace(#[source] io::Error),
    /// A step of the set-up failed.
    #[error("cannot {step}: {source}")]
    Setup {
        /// The step that failed, as a verb phrase for the message.
        step: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl NetnsError {
    pub(super) fn setup(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Setup { step, source }
    }

    /// Whether the reason is that namespaces are not permitted here, as opposed to a fault.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::UserNamespace(_) | Self::NetworkNamespace(_))
    }
}
