//! `waypost get clusters|services|uris|streams|callees|overrides|journal [NAME]`.

use serde::Serialize;
use waypost_admin_api::{
    CalleesView, ClusterSummary, ClusterView, OperatorView, ServiceView, StreamView, UriView, path,
};

use super::{rows, statements};
use crate::admin::Admin;
use crate::args::{GetArgs, ListArg, OutputFormat};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) async fn run(args: GetArgs) -> Result<Exit, Failure> {
    let admin = Admin::new(&args.server.server);
    let format = args.output.output;
    let name = args.name.as_deref();
    match args.what {
        ListArg::Clusters => {
            let clusters = clusters(&admin, name).await?;
            print(format, &clusters, &rows::CLUSTERS, rows::cluster)
        }
        ListArg::Services => {
            let services = services(&admin, name).await?;
            print(format, &services, &rows::SERVICES, rows::service)
        }
        ListArg::Uris => {
            let uris = uris(&admin, name).await?;
            print(format, &uris, &rows::URIS, rows::uri)
        }
        ListArg::Callees => {
            let callees = callees(&admin, name).await?;
            print(format, &callees, &rows::CALLEES, rows::callees)
        }
        ListArg::Overrides => {
            let view: OperatorView = admin.get(&path::operator(name)).await?;
            let header = &statements::OVERRIDES;
            print(format, &view.overrides, header, statements::override_row)
        }
        ListArg::Journal => {
            let view: OperatorView = admin.get(&path::operator(name)).await?;
            let header = &statements::JOURNAL;
            print(format, &view.journal, header, statements::journal_row)
        }
        ListArg::Streams => {
            let streams = streams(&admin, name).await?;
            print(format, &streams, &rows::STREAMS, rows::stream)
        }
    }
}

async fn clusters(admin: &Admin, name: Option<&str>) -> Result<Vec<ClusterSummary>, Failure> {
    match name {
        None => admin.get_all(&path::clusters()).await,
        Some(name) => {
            let view: ClusterView = admin.get(&path::cluster(name)).await?;
            Ok(vec![view.summary])
        }
    }
}

async fn services(admin: &Admin, name: Option<&str>) -> Result<Vec<ServiceView>, Failure> {
    match name {
        None => admin.get_all(&path::services()).await,
        Some(name) => Ok(vec![admin.get(&path::service(name)).await?]),
    }
}

async fn callees(admin: &Admin, name: Option<&str>) -> Result<Vec<CalleesView>, Failure> {
    match name {
        None => admin.get_all(&path::callees()).await,
        Some(name) => Ok(vec![admin.get(&path::callees_of(name)).await?]),
    }
}

async fn uris(admin: &Admin, cluster: Option<&str>) -> Result<Vec<UriView>, Failure> {
    if let Some(cluster) = cluster {
        return admin.get_all(&path::uris(cluster)).await;
    }
    let mut all = Vec::new();
    for cluster in clusters(admin, None).await? {
        all.extend(admin.get_all(&path::uris(&cluster.name)).await?);
    }
    Ok(all)
}

pub(super) async fn streams(admin: &Admin, id: Option<&str>) -> Result<Vec<StreamView>, Failure> {
    let streams: Vec<StreamView> = admin.get_all(&path::streams()).await?;
    let Some(id) = id else {
        return Ok(streams);
    };
    let found: Vec<_> = streams
        .into_iter()
        .filter(|s| s.id.to_string() == id || s.node_id == id)
        .collect();
    if found.is_empty() {
        return Err(Failure::failed(format!(
            "no open stream has the number or node id {id:?}"
        )));
    }
    Ok(found)
}

fn print<T: Serialize>(
    format: OutputFormat,
    items: &[T],
    header: &[&str],
    row: impl Fn(&T) -> Vec<String>,
) -> Result<Exit, Failure> {
    output::print(format, &items, || {
        output::table(header, items.iter().map(row).collect())
    })?;
    Ok(Exit::Done)
}
