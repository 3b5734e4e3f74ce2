use super::*;

/// Samples of MariaDB 10.11 and of its client, under TLS connects.
const MARIADB: &str = include_str!("mariadb.txt");
/// The same of PostgreSQL 15.
const POSTGRES: &str = include_str!("postgres.txt");

fn stack(frames: &str) -> String {
    let lines = frames.lines().map(|frame| format!("\t  7b4fe5 {frame}\n"));
    format!(" 42 \n{}\n", lines.collect::<String>())
}

/// The part of one sample of an old process.
fn part(frames: &str) -> CpuPart {
    let counts = count(&stack(frames), &[42]);
    assert_eq!(counts.values().sum::<u64>(), 1, "{counts:?}");
    *counts.keys().next().unwrap()
}

#[test]
fn recorded_samples_of_mariadb_are_recognised() {
    let expected = [
        (CpuPart::TlsContext, 1),
        (CpuPart::Certificates, 1),
        (CpuPart::Signature, 2),
        (CpuPart::KeyExchange, 1),
        (CpuPart::Handshake, 1),
        (CpuPart::Records, 1),
        (CpuPart::Session, 1),
        (CpuPart::Network, 1),
        (CpuPart::Switches, 1),
    ];
    assert_eq!(count(MARIADB, &[8_530, 8_581]), expected.into());
}

/// One of the samples is of the accounting for `perf`.
#[test]
fn recorded_samples_of_postgres_are_recognised() {
    let expected = [
        (CpuPart::TlsContext, 1),
        (CpuPart::Passwords, 1),
        (CpuPart::Processes, 1),
        (CpuPart::Session, 1),
        (CpuPart::Other, 1),
    ];
    assert_eq!(count(POSTGRES, &[10_321, 10_390]), expected.into());
}

#[test]
fn page_faults_are_the_start_of_a_new_process_only() {
    let fault = stack("clear_page (k)\nasm_exc_page_fault (k)\nExecutorRun (/usr/bin/postgres)");
    assert_eq!(count(&fault, &[]), [(CpuPart::Processes, 1)].into());
    assert_eq!(count(&fault, &[42]), [(CpuPart::Other, 1)].into());
}

#[test]
fn cryptography_belongs_to_what_it_is_done_for() {
    let verification =
        "EVP_DigestVerifyFinal (/lib/libcrypto.so.3)\nASN1_item_verify_ctx (/lib/libcrypto.so.3)";
    assert_eq!(part(verification), CpuPart::Certificates);
    let loading = format!("{verification}\nSSL_CTX_load_verify_locations (/lib/libssl.so.3)");
    assert_eq!(part(&loading), CpuPart::TlsContext);
    assert_eq!(part("EVP_DigestVerifyFinal (/lib/libcrypto.so.3)"), CpuPart::Signature);
    // The kernel's work stays the kernel's.
    assert_eq!(part("tcp_sendmsg (k)\nSSL_write (/lib/libssl.so.3)"), CpuPart::Network);
    assert_eq!(part("EVP_Digest (c)\nPKCS5_PBKDF2_HMAC (c)\nscram_SaltedPassword (p)"), CpuPart::Passwords);
}

#[test]
fn other_tls_libraries_are_known() {
    assert_eq!(part("aws_lc_0_39_0_EVP_PKEY_derive (/usr/bin/client)"), CpuPart::KeyExchange);
    assert_eq!(part("rustls::client::hs::start_handshake (/usr/bin/client)"), CpuPart::Handshake);
    assert_eq!(part("crypto/tls.(*halfConn).encrypt (/usr/bin/ferretdb)"), CpuPart::Records);
}

#[test]
fn a_handshake_without_exported_functions_is_one() {
    let inside =
        "[unknown] (/lib/libcrypto.so.3)\n[unknown] (/lib/libssl.so.3)\nacl_authenticate (/sbin/mariadbd)";
    assert_eq!(part(inside), CpuPart::Handshake);
    assert_eq!(part("[unknown] (/sbin/mariadbd)\nacl_authenticate (/sbin/mariadbd)"), CpuPart::Session);
}

#[test]
fn what_is_not_a_sample_is_passed_over() {
    assert_eq!(count("", &[]), BTreeMap::new());
    let with_warning = format!("Warning: 3 events were lost\n\n{}\nnonsense\n", stack("main (/bin/a)"));
    assert_eq!(count(&with_warning, &[42]), [(CpuPart::Other, 1)].into());
    // A stack that could not be unwound still counts.
    assert_eq!(count(" 42 \n\n 43 \n\n", &[42, 43]), [(CpuPart::Other, 2)].into());
}

#[test]
fn the_numbers_of_samples_and_frames_are_bounded() {
    let many = " 42 \n\n".repeat(MOST_SAMPLES + 5);
    assert_eq!(count(&many, &[]).values().sum::<u64>(), MOST_SAMPLES as u64);
    let deep = stack(&format!("{}tcp_sendmsg (k)", "f (x)\n".repeat(MOST_FRAMES)));
    assert_eq!(count(&deep, &[42]), [(CpuPart::Other, 1)].into());
}
