//! `freshwire-host doctor`: what of this machine packet push can use.

use std::fs::File;
use std::io::ErrorKind;
use std::process::ExitCode;

use crate::output::print;
use crate::push::readiness;

/// Check this machine and print what `push` can use.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 programs can be run behind a push, 1 they run untouched.")]
pub(crate) struct DoctorArgs {}

/// Runs `freshwire-host doctor`.
pub(crate) fn run(_: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let library = readiness();
    let file = match &library {
        Ok(path) => format!("works: {}", path.display()),
        Err(error) => {
            format!("{error}; set XDG_CACHE_HOME to a folder of yours whose files may be executed")
        }
    };
    let io_uring = match freshwire_push::probe_io_uring() {
        Ok(()) => "works".to_owned(),
        Err(error) => format!(
            "refused ({error}), receivers use a thread; optional: Linux 6.0 or newer, kernel.io_uring_disabled=0, a sandbox that \
             permits it"
        ),
    };
    let module = module(File::options().read(true).write(true).open("/dev/pkt_push").map(drop));
    print(&format!("preloaded library  {file}\nio_uring           {io_uring}\npkt_push module    {module}"))?;
    Ok(ExitCode::from(u8::from(library.is_err())))
}

fn module(opened: std::io::Result<()>) -> String {
    match opened {
        Ok(()) => "loaded".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            "not there; optional: build host/kernel/pkt_push, then sudo modprobe pkt_push".to_owned()
        }
        Err(error) => format!("{error}; give yourself access to /dev/pkt_push (udev rule, chmod)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_absent_or_refused_comes_with_advice() {
        assert_eq!(module(Ok(())), "loaded");
        assert!(module(Err(ErrorKind::NotFound.into())).contains("modprobe pkt_push"));
        assert!(module(Err(ErrorKind::PermissionDenied.into())).contains("chmod"));
    }
}
