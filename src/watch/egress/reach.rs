//! From a place to a connection. Owns that names are looked up here only, that each address is
//! judged before it is connected to, and by what upstreams are trusted. Must not know HTTP.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::house::{Execution, Using};
use crate::core::egress::{Denial, Destination, Host, Trouble, judge_address};
use crate::core::limits::EGRESS_ADDRESSES_TRIED_MAX;

/// The system's certificates. Read once: it takes a while, and root may have to do it.
pub(super) fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let (_known, _unusable) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Trusts the system's certificates and these.
pub(super) fn trust(system: &RootCertStore, extra: Option<&str>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = system.clone();
    let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "extra_ca has no certificates");
    let mut own = 0;
    for certificate in CertificateDer::pem_slice_iter(extra.unwrap_or_default().as_bytes()) {
        roots.add(certificate.map_err(wrong)?).map_err(io::Error::other)?;
        own += 1;
    }
    if extra.is_some() && own == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "extra_ca has no certificates"));
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Connects to a place, by an address that may be reached.
pub(super) async fn connect(
    using: &Using,
    execution: &Execution,
    to: &Destination,
) -> Result<TcpStream, Denial> {
    let trouble = |trouble| Denial::Upstream { to: to.clone(), trouble };
    let all = Duration::from_millis(using.told.caps.connect_ms);
    let connected = timeout(all, async {
        let addresses = judged(using, &execution.lookups, to).await?;
        let each = all / u32::try_from(addresses.len()).unwrap_or(1).max(1);
        let mut failed = trouble(Trouble::Connect);
        for address in addresses {
            match timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _slower_without_it = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(_refused)) => {}
                Err(_late) => failed = trouble(Trouble::Late),
            }
        }
        Err(failed)
    });
    connected.await.unwrap_or_else(|_late| Err(trouble(Trouble::Late)))
}

/// The addresses of a place that may be reached.
async fn judged(
    using: &Using,
    lookups: &Arc<Semaphore>,
    to: &Destination,
) -> Result<Vec<SocketAddr>, Denial> {
    let found: Vec<IpAddr> = match &to.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => look_up(lookups, name.clone()).await.unwrap_or_default(),
    };
    if found.is_empty() {
        return Err(Denial::Upstream { to: to.clone(), trouble: Trouble::Name });
    }
    let mut open = Vec::new();
    let mut shut = None;
    for address in found {
        match judge_address(address, &using.told.addresses) {
            Ok(()) => open.push(SocketAddr::new(address, to.port)),
            Err(closed) => shut = Some(closed),
        }
    }
    open.truncate(EGRESS_ADDRESSES_TRIED_MAX);
    match shut {
        Some(closed) if open.is_empty() => Err(Denial::Address { to: to.clone(), closed }),
        Some(_) | None => Ok(open),
    }
}

/// A thread waits for the system's answer, also when nobody else does any more: so an execution has
/// few of them.
async fn look_up(lookups: &Arc<Semaphore>, name: String) -> io::Result<Vec<IpAddr>> {
    let permit = Arc::clone(lookups).acquire_owned().await.map_err(io::Error::other)?;
    let looked = tokio::task::spawn_blocking(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        drop(permit);
        found.map(|all| all.map(|address| address.ip()).collect())
    });
    looked.await?
}

/// Makes TLS of a connection to this place.
pub(super) async fn secure(
    using: &Using,
    stream: TcpStream,
    to: &Destination,
) -> Result<TlsStream<TcpStream>, Denial> {
    let trouble = |trouble| Denial::Upstream { to: to.clone(), trouble };
    let name = match &to.host {
        Host::Name(name) => ServerName::try_from(name.clone()),
        Host::Address(address) => Ok(ServerName::from(*address)),
    };
    let name = name.map_err(|_| trouble(Trouble::Tls))?;
    let connect = TlsConnector::from(Arc::clone(&using.tls)).connect(name, stream);
    match timeout(Duration::from_millis(using.told.caps.connect_ms), connect).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(_untrusted)) => Err(trouble(Trouble::Tls)),
        Err(_late) => Err(trouble(Trouble::Late)),
    }
}
