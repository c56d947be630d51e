use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::silence::probe;
use super::{Admission, Conn, canonical};
use crate::tasks::Tasks;

/// Connections that are ready and wait for [`Acceptor::accept`]. More wait in the kernel.
const READY: usize = 64;

/// How long to wait when the system has no descriptor or memory for a connection.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// Takes the connections of one listener, within the limits and with their TLS handshakes done. A slow handshake holds up
/// nobody else. Dropping it closes the listener.
pub struct Acceptor {
    ready: Mutex<mpsc::Receiver<Conn>>,
    task: JoinHandle<()>,
    local: SocketAddr,
    encrypted: bool,
}

impl Acceptor {
    /// Begins to take connections; needs a Tokio runtime. With `tls` each is encrypted.
    ///
    /// # Errors
    ///
    /// If the system does not say the listener's address.
    pub fn new(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        admission: Arc<Admission>,
        tasks: Tasks,
    ) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let encrypted = tls.is_some();
        let (sender, receiver) = mpsc::channel(READY);
        let taking = AcceptTask { listener, tls, admission, tasks: tasks.clone(), ready: sender };
        let task = tokio::spawn(async move {
            tasks.keep(format!("acceptor of {local}"), || take(&taking)).await;
        });
        Ok(Self { ready: Mutex::new(receiver), task, local, encrypted })
    }

    /// The next connection. Waits for as long as there is none.
    pub async fn accept(&self) -> Conn {
        match self.ready.lock().await.recv().await {
            Some(conn) => conn,
            // The task that feeds this ends with the runtime.
            None => std::future::pending().await,
        }
    }

    /// The next connection; `None` once the server stops and those that were accepted until then are taken. Later ones
    /// wait if a service manager holds the listener, and are refused otherwise.
    pub(crate) async fn next(&self, shutdown: &mut watch::Receiver<bool>) -> Option<Conn> {
        tokio::select! {
            biased;
            // A sender that is gone has stopped, too.
            _ = shutdown.wait_for(|&stops| stops) => {}
            conn = self.accept() => return Some(conn),
        }
        self.task.abort();
        // Ends with the listener's task and the handshakes.
        self.ready.lock().await.recv().await
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether its connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The state of a listener's task.
struct AcceptTask {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    admission: Arc<Admission>,
    tasks: Tasks,
    ready: mpsc::Sender<Conn>,
}

async fn take(taking: &AcceptTask) {
    let AcceptTask { listener, tls, admission, tasks, ready } = taking;
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_peers_doing(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection; is the limit of open files too low?");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        let peer = canonical(peer);
        let permit = match admission.admit(peer.ip()) {
            Ok(permit) => permit,
            Err(limit) => {
                tracing::info!(%peer, limit, "refused a connection");
                continue;
            }
        };
        // Answers to requests are small and waited for. A socket that is gone already says so at the next read.
        let _ = socket.set_nodelay(true);
        let limits = admission.limits();
        let _ = probe(&socket, limits.keepalive, limits.keepalive_timeout);
        let Some(tls) = tls else {
            if ready.send(Conn::admitted(socket, peer, permit)).await.is_err() {
                return;
            }
            continue;
        };
        let (tls, admission, ready) = (tls.clone(), Arc::clone(admission), ready.clone());
        tasks.spawn("TLS handshake", async move {
            match handshake(&tls, socket, admission.limits().handshake_timeout).await {
                // The server may have stopped meanwhile.
                Ok(stream) => drop(ready.send(Conn::encrypted(stream, peer, permit)).await),
                Err(error) => {
                    admission.failed_handshakes.add_one();
                    tracing::info!(%peer, %error, "no TLS handshake");
                }
            }
        });
    }
}

async fn handshake(
    tls: &TlsAcceptor,
    socket: TcpStream,
    timeout: Duration,
) -> io::Result<tokio_rustls::TlsStream<TcpStream>> {
    let accepted = tokio::time::timeout(timeout, tls.accept(socket)).await;
    accepted
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the client took too long")))
        .map(Into::into)
}

/// Whether one connection failed before it was accepted, which says nothing about the listener.
fn is_peers_doing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
