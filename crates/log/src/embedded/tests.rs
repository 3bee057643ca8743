//! The embedded log over a disk in memory that loses, tears and refuses writes.

mod disk;
mod disk_failure;
mod ledger;
mod power_loss;

use std::sync::Arc;
use std::time::Duration;

use redb::Builder;
use waypost_core::port::LogError;
use waypost_core::record::{Delivery, Headers, NewRecord, Topic};

use self::disk::TestDisk;
use super::directory::Directory;
use super::opening::{Opened, fill, open_store, start};
use super::store::{Changes, OpenDatabase, Store};
use super::{EmbeddedLog, EmbeddedSettings, Origin};

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(60);

fn mk_record(key: &str, value: &str, delivery: Delivery) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_owned().into(),
        value: Some(value.to_owned().into()),
        headers: Headers::default(),
        delivery,
    }
}

fn opener(disk: &Arc<TestDisk>) -> OpenDatabase {
    let disk = Arc::clone(disk);
    Box::new(move |builder: &mut Builder| builder.create_with_backend(disk.backend()))
}

/// Writes an empty log to `disk`.
fn format(disk: &Arc<TestDisk>) {
    let settings = EmbeddedSettings {
        partitions: 2,
        ..EmbeddedSettings::standard()
    };
    let store = Store::open(&opener(disk)).expect("an empty disk");
    let contents = settings.new_contents();
    fill(
        &store,
        &contents,
        Changes::default(),
        None,
        &*settings.clock,
    )
    .expect("writes");
}

/// Opens the log that `disk` holds.
async fn open(disk: &Arc<TestDisk>) -> Result<EmbeddedLog, LogError> {
    let disk = Arc::clone(disk);
    let settings = EmbeddedSettings::standard();
    EmbeddedLog::spawn(settings.bounds_interval, move || {
        open_blocking(&disk, &settings)
    })
    .await
}

fn open_blocking(disk: &Arc<TestDisk>, settings: &EmbeddedSettings) -> Result<Opened, LogError> {
    let directory = Directory::nowhere();
    let (store, loaded) = open_store(&directory, &opener(disk))?;
    start(
        directory,
        opener(disk),
        store,
        loaded,
        Origin::Existing,
        settings,
    )
}
