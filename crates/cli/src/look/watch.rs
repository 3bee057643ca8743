//! `waypost watch CLUSTER`.

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use tokio::time::{sleep, timeout};
use waypost_admin_api::{WatchEvent, WatchEventKind, path};

use super::rows;
use crate::admin::Admin;
use crate::args::{WatchArgs, WatchFormat};
use crate::exit::{Exit, Failure};
use crate::limits::{WATCH_LINE_BYTES_MAX, WATCH_PAUSE, WATCH_SILENCE_MAX};
use crate::output::{print_line, show_time};

/// Follows a cluster until it is interrupted. An Observer that goes away is waited for; one that was
/// never there is an error.
pub(crate) async fn run(args: WatchArgs) -> Result<Exit, Failure> {
    let admin = Admin::new(&args.server.server);
    let path = path::watch(args.cluster.as_str());
    let mut body = admin.open(&path).await?.into_body();
    loop {
        let why = follow(body, args.output).await?;
        eprintln!("waypost: the watch broke ({why}); beginning again");
        body = loop {
            sleep(WATCH_PAUSE).await;
            if let Ok(response) = admin.open(&path).await {
                break response.into_body();
            }
        };
    }
}

/// Prints lines until the connection ends; says why it did.
async fn follow(mut body: Incoming, format: WatchFormat) -> Result<String, Failure> {
    let mut lines = LineBuffer::default();
    loop {
        let frame = match timeout(WATCH_SILENCE_MAX, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Ok(error.to_string()),
            Ok(None) => return Ok("the Observer ended it".to_owned()),
            Err(_) => return Ok(format!("silent for {} s", WATCH_SILENCE_MAX.as_secs())),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        for line in lines.take(&data)? {
            print_event(&line, format)?;
        }
    }
}

fn print_event(line: &str, format: WatchFormat) -> Result<(), Failure> {
    let event: WatchEvent = serde_json::from_str(line).map_err(|e| {
        Failure::failed(format!("the Observer sent a line that cannot be read: {e}"))
    })?;
    match format {
        WatchFormat::Json => print_line(line),
        WatchFormat::Text => show(&event, &now()).map_or(Ok(()), |text| print_line(&text)),
    }
}

fn now() -> String {
    show_time(waypost_runtime::WallClock::system().now().0)
}

fn show(event: &WatchEvent, now: &str) -> Option<String> {
    let word = match event.event {
        WatchEventKind::Present => "present",
        WatchEventKind::Up => "up",
        WatchEventKind::Changed => "changed",
        WatchEventKind::Down => "down",
        WatchEventKind::Synced => {
            return Some(format!("{now}  synced   {} instance(s)", event.instances));
        }
        WatchEventKind::Idle => return None,
    };
    let uri = event.uri.as_deref().unwrap_or("");
    let mut text = format!("{now}  {word:<7}  {uri}");
    if let Some(instance) = event.instance.as_ref().filter(|_| word != "down") {
        let weights = rows::weights(&instance.weights);
        text.push_str(&format!("  {}  weight {weights}", instance.health.as_str()));
        let notes = rows::notes(instance);
        if !notes.is_empty() {
            text.push_str(&format!("  {notes}"));
        }
    }
    if let Some(millis) = event.propagation_ms {
        text.push_str(&format!("  after {millis}ms"));
    }
    text.push_str(&format!("  ({} instance(s))", event.instances));
    Some(text)
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct LineBuffer(Vec<u8>);

impl LineBuffer {
    fn take(&mut self, data: &Bytes) -> Result<Vec<String>, Failure> {
        self.0.extend_from_slice(data);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty() {
                lines.push(text);
            }
        }
        if self.0.len() > WATCH_LINE_BYTES_MAX {
            return Err(Failure::failed(format!(
                "the Observer sent a line of more than {WATCH_LINE_BYTES_MAX} bytes"
            )));
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_network_cuts_them() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.take(&Bytes::from("a\nb")).unwrap(), ["a"]);
        assert!(buffer.take(&Bytes::from("c")).unwrap().is_empty());
        assert_eq!(buffer.take(&Bytes::from("\n\n d \n")).unwrap(), ["bc", "d"]);
        let long = Bytes::from(vec![b'x'; WATCH_LINE_BYTES_MAX + 1]);
        assert!(buffer.take(&long).is_err());
    }

    #[test]
    fn idle_lines_are_not_shown() {
        let event = |kind| WatchEvent {
            event: kind,
            uri: Some("grpc://h:1".to_owned()),
            instance: None,
            propagation_ms: Some(7),
            instances: 2,
        };
        assert_eq!(show(&event(WatchEventKind::Idle), "T"), None);
        let down = show(&event(WatchEventKind::Down), "T").unwrap();
        assert_eq!(down, "T  down     grpc://h:1  after 7ms  (2 instance(s))");
    }
}
