//! Callees: the services that an application calls. D2 clients warm them up when they start, proxies that
//! name no services call them (docs/resources.md).

use std::collections::BTreeSet;

use waypost_core::limits::CALLEES_MAX;
use waypost_core::{ApplicationName, ServiceName};

/// What stands between an application and its instance in the names by which clients ask.
const AFTER_APPLICATION: char = ':';

/// Reads the names of services; an error is a place in the list and what is wrong there.
pub(super) fn read_services(names: &[String]) -> Result<Vec<ServiceName>, Vec<(String, String)>> {
    let mut services = Vec::with_capacity(names.len());
    let mut wrong = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match ServiceName::parse(name) {
            Ok(service) => services.push(service),
            Err(error) => wrong.push((place(index), error.to_string())),
        }
    }
    if wrong.is_empty() {
        Ok(services)
    } else {
        Err(wrong)
    }
}

/// What is wrong with the name of an application; `None` if nothing is.
pub(super) fn mistake_of_name(name: &ApplicationName) -> Option<&'static str> {
    let has_instance = name.as_str().contains(AFTER_APPLICATION);
    has_instance.then_some(
        "holds a :, after which clients name their instance; the list is of the application, name it alone",
    )
}

/// Places in the list of services, and what is wrong there.
pub(super) fn mistakes_of_services(services: &[ServiceName]) -> Vec<(String, String)> {
    if services.len() > CALLEES_MAX {
        let why = format!(
            "has {} services; at most {CALLEES_MAX} are allowed",
            services.len()
        );
        return vec![("services".to_owned(), why)];
    }
    let mut seen = BTreeSet::new();
    let twice = services
        .iter()
        .enumerate()
        .filter(|(_, service)| !seen.insert(*service));
    twice
        .map(|(index, service)| {
            (
                place(index),
                format!("is {service}, which is there already"),
            )
        })
        .collect()
}

fn place(index: usize) -> String {
    format!("services[{index}]")
}
