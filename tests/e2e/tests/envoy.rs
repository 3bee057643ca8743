//! What `waypost bootstrap envoy` prints is accepted by Envoy itself.

use waypost_testkit::envoy::Envoy;
use waypost_testkit::waypost::write_bootstrap;

#[tokio::test]
async fn envoy_accepts_every_form_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let by_name = [
        "--to",
        "observers.example:18000",
        "--fabric",
        "east",
        "--zone",
        "a",
    ];
    let by_address = [
        "--to",
        "127.0.0.2:1,127.0.0.3:1",
        "--proxy-listen",
        "[::1]:0",
    ];
    for observers in [&by_name[..], &by_address[..]] {
        for protocol in ["delta", "sotw"] {
            for per_type in [&[][..], &["--per-type"]] {
                let how = ["--protocol", protocol, "--service", "greeter,profile"];
                let args = [observers, &how, per_type].concat();
                let file = folder.path().join("envoy.yaml");
                write_bootstrap("envoy", &args, &file).await.unwrap();
                let done = Envoy::validate(&file).await.unwrap();
                assert_eq!(done.code(), 0, "{args:?}: {}", done.stderr);
            }
        }
    }
}
