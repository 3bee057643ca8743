//! Who is connected and what they hold.

use axum::Json;
use axum::extract::{RawQuery, State};
use waypost_admin_api::{
    AddressFamilies, ClientKindName, Page, Protocol, ScopeView, StreamType, StreamView,
};
use waypost_core::{AddressFamily, ClientKind, Scope};
use waypost_xds::{Transport, TypeView};

use super::error::ApiError;
use super::page::PageQuery;
use super::{AdminState, millis};
use crate::limits::STREAM_NAMES_LISTED_MAX;

pub(super) async fn streams(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<StreamView>>, ApiError> {
    let query = PageQuery::read(query.as_deref())?;
    let open = state.streams.view(STREAM_NAMES_LISTED_MAX);
    // Numbers of streams as text of one length, so that their order is the order of the text.
    let cursor = |stream: &waypost_xds::StreamView| format!("{:020}", stream.id.0);
    let page = query.cut(open, cursor, |stream| Some(view(&state, stream)));
    Ok(Json(page))
}

fn view(state: &AdminState, stream: &waypost_xds::StreamView) -> StreamView {
    let node = stream.node.clone().unwrap_or_default();
    StreamView {
        id: stream.id.0,
        peer: stream.peer.to_string(),
        protocol: match stream.transport {
            Transport::Sotw => Protocol::Sotw,
            Transport::Delta => Protocol::Delta,
        },
        node_id: node.id,
        node_cluster: node.cluster,
        user_agent: node.user_agent,
        client: match stream.variant.client {
            ClientKind::Grpc => ClientKindName::Grpc,
            ClientKind::Envoy => ClientKindName::Envoy,
            ClientKind::D2 => ClientKindName::D2,
        },
        address_families: match stream.variant.addresses {
            AddressFamily::V4 => AddressFamilies::Ipv4,
            AddressFamily::V6 => AddressFamilies::Ipv6,
            AddressFamily::Both => AddressFamilies::Both,
        },
        fabric: state
            .locator
            .find_fabric(stream.variant.fabric)
            .map_or_else(String::new, |fabric| fabric.to_string()),
        scope: node.scope.as_deref().map(scope_view),
        open_ms: millis(stream.age),
        backlog_ms: stream.backlog_age.map(millis),
        types: stream.types.iter().map(type_view).collect(),
    }
}

fn scope_view(scope: &Scope) -> ScopeView {
    ScopeView {
        services: scope.services.iter().map(ToString::to_string).collect(),
        application: scope.application.as_ref().map(ToString::to_string),
        outbound: scope.outbound.map(|address| address.to_string()),
    }
}

fn type_view(view: &TypeView) -> StreamType {
    StreamType {
        type_url: view.acks.resource_type.type_url().to_owned(),
        names: view.names.clone(),
        names_total: view.subscriptions as u64,
        responses: view.acks.responses,
        nacks: u64::from(view.acks.nacks),
        last_nack: view.acks.last_error.clone(),
        nonce_sent: view.acks.last_nonce_sent.clone(),
        nonce_acked: view.acks.last_nonce_acked.clone(),
    }
}
