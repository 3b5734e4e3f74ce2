//! Samples of `perf script` by part of the CPU time. Pure.
//!
//! Libraries of distributions are stripped: a stack has the names of exported functions only. A sample belongs to the part
//! of the innermost frame that the table knows. There is one exception: the cryptography of a part that [`encloses`] it
//! belongs to that part. For example, a signature is verified to verify a certificate, and a certificate is decoded to read
//! an authority.

use std::collections::BTreeMap;

use ciphertoll_model::CpuPart;

/// More is cut off.
const MOST_SAMPLES: usize = 200_000;
const MOST_FRAMES: usize = 128;

/// A frame of a stack.
struct Frame<'a> {
    symbol: &'a str,
    /// The file name of its program or library.
    object: &'a str,
}

/// A sample with its stack, the innermost frame first.
struct SampledStack<'a> {
    process: i32,
    frames: Vec<Frame<'a>>,
}

impl SampledStack<'_> {
    /// The kernel's accounting for `perf`: with each mapping, process and switch of the sampled processes.
    fn is_of_perf(&self) -> bool {
        self.frames.iter().any(|frame| frame.symbol.contains("perf_event_"))
    }
}

/// Counts the samples of `text` by part, without the work that sampling itself causes. Page faults of processes that are
/// not in `older` are a part of their start.
pub(crate) fn count(text: &str, older: &[i32]) -> BTreeMap<CpuPart, u64> {
    let mut counts = BTreeMap::new();
    for sample in samples(text).take(MOST_SAMPLES).filter(|sample| !sample.is_of_perf()) {
        *counts.entry(part_of(&sample, older)).or_default() += 1;
    }
    counts
}

/// `perf script -F pid,ip,sym,dso`: a line with the process, a line per frame, an empty line. Other lines are ignored.
fn samples(text: &str) -> impl Iterator<Item = SampledStack<'_>> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let process = lines.find_map(|line| line.trim().parse().ok())?;
        let stack = lines.by_ref().take_while(|line| !line.trim().is_empty());
        let mut frames: Vec<Frame<'_>> = stack.filter_map(frame).collect();
        frames.truncate(MOST_FRAMES);
        Some(SampledStack { process, frames })
    })
}

/// `7b4fe5 acl_authenticate (/usr/sbin/mariadbd)`.
fn frame(line: &str) -> Option<Frame<'_>> {
    let (_, named) = line.trim().split_once(' ')?;
    let (symbol, object) = named.rsplit_once(" (")?;
    let object = object.trim_end_matches(')');
    Some(Frame { symbol: own_name(symbol), object: object.rsplit('/').next().unwrap_or(object) })
}

/// Without the prefix that AWS-LC gives to all of its symbols: `aws_lc_0_39_0_EVP_PKEY_derive`.
fn own_name(symbol: &str) -> &str {
    let Some(rest) = symbol.strip_prefix("aws_lc_") else { return symbol };
    rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '_')
}

fn part_of(SampledStack { process, frames }: &SampledStack<'_>, older: &[i32]) -> CpuPart {
    let is_new = !older.contains(process);
    let mut found = None;
    for frame in frames {
        let known = known(frame.symbol, is_new);
        match (found, known) {
            (None, known) => found = known,
            (Some(inner), Some(outer)) if encloses(outer, inner) => found = known,
            _ => {}
        }
    }
    // A handshake calls no exported function of the TLS library: its entry jumps into the state machine.
    let is_tls = frames.iter().any(|frame| frame.object.starts_with("libssl"));
    match found {
        None | Some(CpuPart::Session) if is_tls => CpuPart::Handshake,
        found => found.unwrap_or(CpuPart::Other),
    }
}

/// Whether work of `inner` that is done within `outer` belongs to `outer`.
fn encloses(outer: CpuPart, inner: CpuPart) -> bool {
    let is_cryptography = matches!(
        inner,
        CpuPart::Signature
            | CpuPart::KeyExchange
            | CpuPart::Records
            | CpuPart::Handshake
            | CpuPart::Passwords
    );
    match outer {
        CpuPart::TlsContext => is_cryptography || inner == CpuPart::Certificates,
        CpuPart::Certificates | CpuPart::Passwords => is_cryptography,
        _ => false,
    }
}

/// The part of the first entry that matches.
fn known(symbol: &str, is_new_process: bool) -> Option<CpuPart> {
    if is_new_process && PAGE_FAULTS.contains(&symbol) {
        return Some(CpuPart::Processes);
    }
    let is_known = |names: &[&str]| names.iter().any(|name| matches(name, symbol));
    TABLE.iter().find(|(_, names)| is_known(names)).map(|(part, _)| *part)
}

/// `NAME*` matches the beginning of a symbol, `*NAME` any place in it.
fn matches(pattern: &str, symbol: &str) -> bool {
    if let Some(inside) = pattern.strip_prefix('*') {
        return symbol.contains(inside);
    }
    match pattern.strip_suffix('*') {
        Some(beginning) => symbol.starts_with(beginning),
        None => symbol == pattern,
    }
}

const PAGE_FAULTS: [&str; 2] = ["asm_exc_page_fault", "do_user_addr_fault"];

/// Functions of the kernel, OpenSSL, AWS-LC, rustls, Go's library and the servers.
const TABLE: [(CpuPart, &[&str]); 11] = [
    (
        CpuPart::TlsContext,
        &[
            "SSL_CTX_new*",
            "SSL_CTX_free",
            "SSL_CTX_load_verify*",
            "SSL_CTX_use_*",
            "SSL_CTX_set_*",
            "X509_STORE_new",
            "X509_STORE_free",
            "X509_STORE_add_*",
            "X509_STORE_load_*",
            "X509_load_*",
            "PEM_*",
            "*RootCertStore",
            "*tls::context::Context::build",
            "*(*CertPool).*",
        ],
    ),
    (
        CpuPart::Certificates,
        &[
            "X509_verify*",
            "X509_get*",
            "ASN1_item_verify*",
            "ASN1_item_d2i*",
            "OSSL_DECODER_CTX_new*",
            "OSSL_DECODER_CTX_add*",
            "OSSL_DECODER_from_*",
            "d2i_*",
            "X509_free",
            "*webpki::",
            "crypto/x509.*",
        ],
    ),
    (
        CpuPart::Passwords,
        &[
            "PKCS5_PBKDF2*",
            "EVP_PBE_scrypt",
            "scram_*",
            "pg_fe_scram*",
            "*::scram::",
            "*mongo::scram",
            "*Scram",
            "my_sha*",
            "my_md5*",
            "compute_md5*",
            "pg_md5*",
            "*generate_sha256_scramble",
            "*sha2_password",
            "*native_password",
            "*pbkdf2",
            "*/scram",
        ],
    ),
    (
        CpuPart::Signature,
        &[
            "EVP_DigestSign*",
            "EVP_DigestVerify*",
            "EVP_PKEY_sign*",
            "EVP_PKEY_verify*",
            "RSA_private_encrypt",
            "RSA_public_decrypt",
            "RSA_sign*",
            "RSA_verify*",
            "ECDSA_*",
            "ED25519_*",
            "ML_DSA*",
            "crypto/ecdsa.*",
            "crypto/rsa.*",
        ],
    ),
    (
        CpuPart::KeyExchange,
        &[
            "EVP_PKEY_derive*",
            "EVP_PKEY_generate",
            "EVP_PKEY_keygen",
            "EVP_PKEY_Q_keygen",
            "EVP_PKEY_encapsulate",
            "EVP_PKEY_decapsulate",
            "EVP_PKEY_decrypt",
            "EC_KEY_generate_key*",
            "ECDH_*",
            "DH_*",
            "X25519*",
            "crypto/ecdh.*",
            "crypto/mlkem.*",
        ],
    ),
    (
        CpuPart::Records,
        &[
            "EVP_CipherUpdate",
            "EVP_EncryptUpdate",
            "EVP_DecryptUpdate",
            "EVP_Cipher",
            "EVP_AEAD_CTX_*",
            "SSL_read*",
            "SSL_write*",
            "*rustls::record_layer",
            "*tls.(*halfConn)",
        ],
    ),
    (
        CpuPart::Handshake,
        &[
            "SSL_accept",
            "SSL_connect",
            "SSL_do_handshake",
            "SSL_new",
            "SSL_free",
            "SSL_shutdown",
            "be_tls_open_server",
            "*TlsSession>::handshake",
            "*rustls::client::hs",
            "*rustls::client::tls1",
            "*rustls::server::",
            "*rustls::tls13::",
            "*tls.(*Conn).HandshakeContext",
            "*tls.(*Conn).handshakeContext",
        ],
    ),
    (
        CpuPart::Network,
        &[
            "tcp_*",
            "__tcp_*",
            "ip_*",
            "__ip_*",
            "inet_*",
            "__inet_*",
            "sock_*",
            "__sock_*",
            "net_rx_action",
            "__napi_poll",
            "process_backlog",
            "__netif_*",
            "netif_*",
            "loopback_xmit",
            "dev_hard_start_xmit",
            "__dev_queue_xmit",
            "unix_stream_*",
            "unix_*",
            "skb_*",
            "__skb_*",
            "kfree_skb*",
            "tun_*",
            "veth_*",
            "nf_*",
            "do_softirq*",
            "__do_softirq",
            "handle_softirqs",
            "__sys_accept4*",
            "__sys_connect*",
            "__sys_socket",
            "__sys_setsockopt",
            "__sys_sendto",
            "__sys_recvfrom",
            "__sys_shutdown",
        ],
    ),
    (
        CpuPart::Switches,
        &[
            "schedule",
            "__schedule",
            "schedule_hrtimeout_*",
            "do_futex",
            "do_sys_poll",
            "do_select",
            "do_epoll_wait",
            "ep_poll",
            "do_epoll_ctl",
        ],
    ),
    (
        CpuPart::Processes,
        &[
            "copy_process",
            "kernel_clone",
            "ret_from_fork*",
            "do_exit",
            "do_group_exit",
            "mmput",
            "exit_mmap",
            "release_task",
            "kernel_wait4",
            "do_wait",
            "__do_execve*",
            "bprm_execve",
            "_Fork",
            "__libc_fork",
            "fork_process",
            "pthread_create*",
            "__run_exit_handlers",
            "_dl_*",
        ],
    ),
    (
        CpuPart::Session,
        &[
            "BaseInit",
            "InitProcess*",
            "InitPostgres",
            "ProcessStartupPacket",
            "PerformAuthentication",
            "ClientAuthentication",
            "proc_exit",
            "shmem_exit",
            "pgstat_*initialize",
            "acl_authenticate",
            "login_connection",
            "thd_prepare_connection",
            "prepare_new_connection_state",
            "end_connection",
            "close_connection",
            "setup_connection_thread_globals",
            "THD::THD",
            "THD::~THD",
            "*create_new_thread",
        ],
    ),
];

#[cfg(test)]
mod tests;
