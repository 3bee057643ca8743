//! Asking the gateways of Observers.

use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Channel;
use waypost_announcer::{connect_lazy, explain};
use waypost_proto::v1::gateway_client::GatewayClient;

use crate::args::GatewayArgs;
use crate::exit::Failure;
use crate::limits::APPLY_MAX;

/// Asks the gateways one after another until one answers. What is asked may be done twice without
/// harm: the second time nothing is left to do.
pub(crate) async fn ask<T, F>(
    gateways: &GatewayArgs,
    call: impl Fn(GatewayClient<Channel>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let tls = gateways.tls.client(&gateways.to)?;
    let mut errors = Vec::new();
    for address in &gateways.to {
        let channel = connect_lazy(address, &tls).map_err(|e| Failure::usage(e.to_string()))?;
        let client = GatewayClient::new(channel);
        match timeout(APPLY_MAX, call(client)).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) if is_final(status.code()) => {
                return Err(Failure::failed(status.message()));
            }
            Ok(Err(status)) => errors.push(format!("gateway {address}: {}", explain(&status))),
            Err(_) => {
                let seconds = APPLY_MAX.as_secs();
                errors.push(format!("gateway {address}: no answer within {seconds} s"));
            }
        }
    }
    Err(Failure::failed(format!(
        "{}; name a running Observer with --to, or write to Kafka with --kafka",
        errors.join("; ")
    )))
}

fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument | Code::Aborted | Code::AlreadyExists | Code::NotFound
    )
}
