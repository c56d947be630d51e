use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Bytes};

use super::reply::{self, Reply};
use crate::config::Limits;

/// The body of a request, within the limits of size and time.
pub(super) async fn read<B>(body: B, limits: &Limits) -> Result<Bytes, Box<Reply>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let refuse = |status, why: &str| Err(Box::new(reply::text(status, why)));
    let body = Limited::new(body, limits.max_body_bytes).collect();
    match tokio::time::timeout(limits.request_timeout, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!(
                "the body has more than {} bytes, the limit: raise limits.max_body",
                limits.max_body_bytes
            );
            refuse(StatusCode::PAYLOAD_TOO_LARGE, &why)
        }
        Ok(Err(_)) => refuse(StatusCode::BAD_REQUEST, "the body ended early"),
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "the body took longer than limits.request_timeout"),
    }
}
