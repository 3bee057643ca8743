//! What rest.li's client tries before it opens its stream (rest.li `XdsClientValidator`).

use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::limits::PRE_CHECK_MAX;

/// A connection that is closed without a byte, then the health of the server as a whole. Any answer
/// passes, whatever it says; so does silence. Why it fails, if it does.
pub(crate) async fn pre_check(server: &str) -> Result<(), String> {
    let connected = timeout(PRE_CHECK_MAX, TcpStream::connect(server)).await;
    if let Ok(Err(error)) = connected {
        return Err(format!("no connection to {server}: {error}"));
    }
    let endpoint = Endpoint::from_shared(format!("http://{server}")).map_err(|e| e.to_string())?;
    let mut client = HealthClient::new(endpoint.connect_lazy());
    let whole = HealthCheckRequest::default();
    match timeout(PRE_CHECK_MAX, client.check(whole)).await {
        Ok(Err(status)) => Err(format!("the health check fails: {status}")),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}
