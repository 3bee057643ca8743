//! What applications call.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use waypost_admin_api::{CalleesView, Page};
use waypost_core::DefinitionKey;
use waypost_store::Store;

use super::AdminState;
use super::catalogue::{definition_view, source_names, with_log};
use super::error::ApiError;
use super::page::PageQuery;

pub(super) async fn all(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<CalleesView>>, ApiError> {
    let query = PageQuery::read(query.as_deref())?;
    let store = state.store();
    let page = query.cut(store.applications(), ToString::to_string, |name| {
        find_view(store, name.as_str())
    });
    Ok(Json(page))
}

pub(super) async fn one(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<CalleesView>, ApiError> {
    let no_such = || {
        state.no_such(format!(
            "of no application {name:?} is defined what it calls; `waypost get callees` lists those that are"
        ))
    };
    let found = state.store().find_callees(&name).ok_or_else(no_such)?;
    let mut view = find_view(state.store(), &name).ok_or_else(no_such)?;
    let definition = &found.definition;
    let key = DefinitionKey::Callees(definition.application.clone());
    let own = definition_view(b"", definition.stat, &definition.author, Vec::new());
    view.definition = Some(with_log(&state, key, own).await?);
    Ok(Json(view))
}

fn find_view(store: &Store, application: &str) -> Option<CalleesView> {
    let definition = store.find_callees(application)?.definition;
    let services = definition.services.iter();
    let unknown = services
        .clone()
        .filter(|s| store.find_service(s.as_str()).is_none());
    Some(CalleesView {
        application: application.to_owned(),
        unknown_services: unknown.map(ToString::to_string).collect(),
        services: services.map(ToString::to_string).collect(),
        definition: None,
        revision: definition.stat.revision,
        sources: source_names(&store.callees_sources(application)),
    })
}
