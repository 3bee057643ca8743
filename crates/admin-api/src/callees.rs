//! What applications call.

use serde::{Deserialize, Serialize};

use crate::DefinitionView;

/// `GET /api/v1/callees/{application}`, also a row of `GET /api/v1/callees`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalleesView {
    /// The application.
    pub application: String,
    /// The services that it calls, in the order in which its clients warm them up.
    pub services: Vec<String>,
    /// Those of them that are not known.
    pub unknown_services: Vec<String>,
    /// Its definition, which has no properties; `null` in rows of the list.
    pub definition: Option<DefinitionView>,
    /// How many times the definition was changed.
    pub revision: u32,
    /// Where facts about it come from, in order of priority; the first is served.
    pub sources: Vec<String>,
}
