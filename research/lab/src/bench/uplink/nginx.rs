//! The server at the uplink's far end: nginx with the RTMP module of Debian, as a child without root's configuration.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use freshwire_netns::Namespaces;

use super::rtmp::{APPLICATION, PORT};
use crate::child::ChildGuard;
use crate::viewers::server::wait_until_it_listens;

/// The module's file.
const MODULE: &str = "ngx_rtmp_module.so";
const INSTALL: &str = "Debian, Ubuntu: apt-get install nginx-light libnginx-mod-rtmp";

/// A folder for nginx alone.
pub(super) struct Nginx {
    folder: tempfile::TempDir,
    module: PathBuf,
}

impl Nginx {
    /// Finds the program and its module.
    ///
    /// # Errors
    ///
    /// If one is missing.
    pub(super) fn find() -> anyhow::Result<Self> {
        let about = Command::new("nginx").arg("-V").stdin(Stdio::null()).output();
        let about =
            about.with_context(|| format!("nginx is missing: it receives what is sent ({INSTALL})"))?;
        let about = String::from_utf8_lossy(&about.stderr).into_owned();
        let modules = about.split_whitespace().find_map(|word| word.strip_prefix("--modules-path="));
        let module = Path::new(modules.unwrap_or("/usr/lib/nginx/modules")).join(MODULE);
        ensure!(module.is_file(), "{} is missing: it receives what is sent ({INSTALL})", module.display());
        Ok(Self { folder: tempfile::tempdir().context("cannot make a folder for nginx")?, module })
    }

    /// Starts it in the far namespace, and waits until it listens.
    pub(super) fn start(&self, namespaces: &Namespaces, log: File) -> anyhow::Result<ChildGuard> {
        let configuration = self.folder.path().join("nginx.conf");
        std::fs::write(&configuration, self.configuration()?)
            .with_context(|| format!("cannot write {}", configuration.display()))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.folder.path()).arg("-c").arg(&configuration).args(["-e", "stderr"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = ChildGuard(namespaces.spawn_far(&mut command).context("cannot start nginx")?);
        wait_until_it_listens(&mut child, || {
            namespaces.in_far(|| TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)))
        })?;
        Ok(child)
    }

    /// - A player gets everything from the first key picture on, and the server drops nothing: its queue has a place for each message of
    ///   a burst. By default it drops pictures of a player with more than 64 messages.
    /// - It answers no ping, as nobody here would.
    fn configuration(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        writeln!(text, "load_module {};", self.module.display())?;
        writeln!(text, "daemon off; master_process off; error_log stderr warn;")?;
        writeln!(text, "pid {};", self.folder.path().join("nginx.pid").display())?;
        writeln!(text, "events {{ worker_connections 64; }}")?;
        writeln!(text, "rtmp {{ access_log off; server {{")?;
        writeln!(text, "  listen {PORT}; chunk_size 4096; out_queue 16384; ping 1d;")?;
        writeln!(text, "  application {APPLICATION} {{ live on; wait_key on; idle_streams on; }}")?;
        writeln!(text, "}} }}")?;
        Ok(text)
    }
}
