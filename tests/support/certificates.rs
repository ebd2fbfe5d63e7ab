//! TLS among tests.

use std::path::Path;

/// Keys and certificates of an authority of the test's own, and of a server with this name.
#[expect(clippy::disallowed_methods, reason = "certificates are made by a program")]
pub(crate) fn certificates(directory: &Path, name: &str) {
    let openssl = |words: &str| {
        let made = std::process::Command::new("openssl")
            .args(words.split(' '))
            .current_dir(directory)
            .output()
            .expect("openssl starts: tests/run.sh installs it");
        assert!(made.status.success(), "{words}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"));
    openssl(&format!(
        "req -x509 {key} -keyout server.key -out server.pem -days 2 -subj /CN=server \
         -addext subjectAltName={name} -addext basicConstraints=critical,CA:FALSE \
         -CA ca.pem -CAkey ca.key"
    ));
}
