use tokio::sync::watch;

/// Returns when the server shuts down.
pub(super) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped, too.
    let _ = shutdown.wait_for(|&stops| stops).await;
}
