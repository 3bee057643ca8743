//! `GET /api/v1/digests…`: for comparing Observers.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use form_urlencoded::parse;
use waypost_admin_api::{
    BucketDigests, BucketKeys, DIGEST_BUCKETS, DigestedKey, Digests, PartitionDigests, TickDigest,
};
use waypost_core::{Offset, PartitionId};

use super::AdminState;
use super::error::ApiError;
use super::page::PageQuery;
use crate::ingest::{BucketAsked, PartitionTicks};

const _: () = assert!(DIGEST_BUCKETS == waypost_fold::limits::DIGEST_BUCKETS);

pub(super) async fn digests(State(state): State<AdminState>) -> Result<Json<Digests>, ApiError> {
    let view = state.questions.digests().await?;
    Ok(Json(Digests {
        identity: view.identity.map(|identity| identity.to_string()),
        loaded: view.is_loaded,
        partitions: view.partitions.into_iter().map(partition_view).collect(),
    }))
}

pub(super) async fn buckets(
    State(state): State<AdminState>,
    Path(partition): Path<u32>,
    RawQuery(query): RawQuery,
) -> Result<Json<BucketDigests>, ApiError> {
    let offset = find_number(query.as_deref(), "offset").ok_or_else(|| {
        ApiError::bad_request("?offset=N is needed: the offset of a tick".to_owned())
    })?;
    let questions = &state.questions;
    let found = questions.bucket_digests(PartitionId(partition), Offset(offset));
    let buckets = found.await?.ok_or_else(|| {
        ApiError::not_found(format!(
            "the tick at offset {offset} of partition {partition} is not among the last ones; /api/v1/digests lists those that are"
        ))
    })?;
    Ok(Json(BucketDigests {
        partition,
        offset,
        buckets: buckets.into_iter().map(hex).collect(),
    }))
}

pub(super) async fn keys(
    State(state): State<AdminState>,
    Path(partition): Path<u32>,
    RawQuery(query): RawQuery,
) -> Result<Json<BucketKeys>, ApiError> {
    let bucket = find_number(query.as_deref(), "bucket").filter(|bucket| *bucket < DIGEST_BUCKETS);
    let bucket = bucket.ok_or_else(|| {
        ApiError::bad_request(format!(
            "?bucket=B is needed: a number below {DIGEST_BUCKETS}"
        ))
    })?;
    let page = PageQuery::read(query.as_deref())?;
    let asked = BucketAsked {
        partition: PartitionId(partition),
        bucket,
        after: page.after.as_deref().map(read_cursor).transpose()?,
        keys_max: page.limit,
    };
    let found = state.questions.bucket_keys(asked).await?;
    let found =
        found.ok_or_else(|| ApiError::not_found(format!("there is no partition {partition}")))?;
    Ok(Json(BucketKeys {
        position: found.position.0,
        items: found.keys.into_iter().map(key_view).collect(),
        next: found.next.map(hex),
    }))
}

fn partition_view(partition: PartitionTicks) -> PartitionDigests {
    let ticks = partition.ticks.into_iter();
    PartitionDigests {
        partition: partition.partition.0,
        position: partition.position.0,
        ticks: ticks
            .map(|(offset, digest)| TickDigest {
                offset: offset.0,
                digest: hex(digest),
            })
            .collect(),
    }
}

fn key_view(key: waypost_fold::DigestedKey) -> DigestedKey {
    DigestedKey {
        cluster: key.key.cluster.to_string(),
        uri: key.key.uri.to_string(),
        life_id: key.life.id.map(|id| id.to_string()),
        born_at_ms: key.life.birth.map(|birth| birth.0),
        seq: key.life.seq,
        content: hex(key.content),
        offset: key.offset.0,
    }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn read_cursor(text: &str) -> Result<u64, ApiError> {
    u64::from_str_radix(text, 16).map_err(|_| {
        ApiError::bad_request(format!("after={text} is no cursor that this API has given"))
    })
}

fn find_number<T: std::str::FromStr>(query: Option<&str>, name: &str) -> Option<T> {
    let mut pairs = parse(query.unwrap_or_default().as_bytes());
    let (_, value) = pairs.find(|(key, _)| key == name)?;
    value.parse().ok()
}
