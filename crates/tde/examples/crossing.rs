//! What a page pays on its way between a server and the operating system: the cipher alone, and each crossing with and
//! without it. Takes the median of many rounds; the first column is µs per page of 8 KiB.
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use ciphertoll_tde::{DataKeys, Engine, Errno, Opened, PageCipher, Place, Storage, Strength, UNIT_BYTES};

const ROUNDS: usize = 200;
const PAGES: u64 = 64;

struct Disk(File);

impl Storage for Disk {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.0.read_at(bytes, offset).map_err(|_| Errno::IO)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        self.0.write_at(bytes, offset).map_err(|_| Errno::IO)
    }

    fn size(&self) -> Result<u64, Errno> {
        self.0.metadata().map(|metadata| metadata.len()).map_err(|_| Errno::IO)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.0.set_len(size).map_err(|_| Errno::IO)
    }
}

/// The median over rounds of µs per page.
fn us_per_page(mut page: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..PAGES).for_each(&mut page);
            start.elapsed().as_secs_f64() * 1e6 / PAGES as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let disk = Disk(tempfile::tempfile()?);
    let mut page = vec![0xA5; UNIT_BYTES];
    let pwrite = us_per_page(|n| {
        black_box(disk.write_at(&page, n * UNIT_BYTES as u64)).ok();
    });
    let pread = us_per_page(|n| {
        black_box(disk.read_at(&mut page, n * UNIT_BYTES as u64)).ok();
    });
    println!("{pwrite:6.2}  pwrite\n{pread:6.2}  pread");
    for strength in Strength::ALL {
        let name = strength.label();
        let mut cipher = PageCipher::new(strength)?;
        let key: [u8; 64] = std::array::from_fn(|n| n as u8);
        cipher.set_key(&key)?;
        let encrypt = us_per_page(|n| cipher.encrypt(&[n as u8; 16], &mut page).unwrap_or_default());
        let decrypt = us_per_page(|n| cipher.decrypt(&[n as u8; 16], &mut page).unwrap_or_default());
        println!("{encrypt:6.2}  {name} encrypts\n{decrypt:6.2}  {name} decrypts");
        let mut engine = Engine::new(DataKeys::generate(strength)?)?;
        let mut file = Opened::new(Place::of(b"base/5/16384"));
        page.fill(0xA5);
        let written = us_per_page(|n| {
            black_box(engine.write_at(&mut file, &disk, &page.as_slice(), n * UNIT_BYTES as u64)).ok();
        });
        let read = us_per_page(|n| {
            black_box(engine.read_at(&mut file, &disk, &mut page, n * UNIT_BYTES as u64)).ok();
        });
        println!(
            "{written:6.2}  {name} pwrite: {:.2} x pwrite and cipher, {:.2} x pwrite",
            written / (pwrite + encrypt),
            written / pwrite
        );
        println!(
            "{read:6.2}  {name} pread: {:.2} x pread and cipher, {:.2} x pread",
            read / (pread + decrypt),
            read / pread
        );
    }
    Ok(())
}
