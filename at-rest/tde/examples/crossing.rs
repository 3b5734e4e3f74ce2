//! Measures the cost of page encryption: AES-256-XTS with AWS-LC compared with the system's OpenSSL, and each encrypted
//! read and write compared with the system call and with the cipher alone. The variants take turns, a few pages at a time,
//! so that other load on the machine affects all of them equally; ratios are between adjacent measurements. Prints the
//! medians of all rounds and their 90 % intervals.
#![expect(clippy::print_stdout, reason = "prints its results")]

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use ciphertoll_tde::{
    CipherKind, DataKeys, EncryptionEngine, Errno, FileClass, OpenFile, PageCipher, Storage, UNIT_BYTES,
};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

const ROUNDS: usize = 600;
/// Pages per turn: a turn takes less time than a scheduler time slice.
const PAGES: usize = 32;
/// More than the processor caches hold.
const COLD_PAGES: usize = 16_384;
const KINDS: usize = 10;
const NAMES: [&str; KINDS] = [
    "pwrite",
    "pread",
    "AES-256-XTS encrypts (AWS-LC)",
    "AES-256-XTS decrypts (AWS-LC)",
    "AES-256-XTS encrypts (OpenSSL)",
    "AES-256-XTS decrypts (OpenSSL)",
    "pwrite, encrypted",
    "pread, decrypted",
    "pwrite, null cipher",
    "pread, null cipher",
];

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

/// All that is measured, on one file.
struct Bench {
    disk: Disk,
    ours: PageCipher,
    theirs: [CipherCtx; 2],
    engine: EncryptionEngine,
    null: EncryptionEngine,
    file: OpenFile,
    null_file: OpenFile,
}

impl Bench {
    fn new(pages: usize) -> Result<Self, Box<dyn Error>> {
        let disk = Disk(tempfile::tempfile()?);
        let page = [0xA5; UNIT_BYTES];
        for number in 0..pages {
            disk.0.write_at(&page, (number * UNIT_BYTES) as u64)?;
        }
        let key: [u8; 64] = std::array::from_fn(|n| n as u8);
        let mut ours = PageCipher::new(CipherKind::Aes256)?;
        ours.set_key(&key)?;
        let cipher = Cipher::fetch(None, CipherKind::Aes256.label(), None)?;
        let mut theirs = [CipherCtx::new()?, CipherCtx::new()?];
        theirs[0].encrypt_init(Some(&cipher), Some(&key), None)?;
        theirs[1].decrypt_init(Some(&cipher), Some(&key), None)?;
        let engine = |cipher_kind| -> Result<EncryptionEngine, Box<dyn Error>> {
            Ok(EncryptionEngine::new(DataKeys::generate(cipher_kind)?)?)
        };
        let file = OpenFile::new(FileClass::of(b"base/5/16384"));
        let (engine, null) = (engine(CipherKind::Aes256)?, engine(CipherKind::Null)?);
        Ok(Self { disk, ours, theirs, engine, null, file, null_file: file })
    }

    fn run(&mut self, kind: usize, number: usize, page: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let (offset, tweak) = ((number * UNIT_BYTES) as u64, (number as u128).to_le_bytes());
        let Self { disk, ours, theirs: [encrypt, decrypt], engine, null, file, null_file } = self;
        let done = match kind {
            0 => disk.0.write_at(page, offset)?,
            1 => disk.0.read_at(page, offset)?,
            2 => ours.encrypt(&tweak, page).map(|()| UNIT_BYTES)?,
            3 => ours.decrypt(&tweak, page).map(|()| UNIT_BYTES)?,
            4 => {
                encrypt.encrypt_init(None, None, Some(&tweak))?;
                encrypt.cipher_update_inplace(page, UNIT_BYTES)?
            }
            5 => {
                decrypt.decrypt_init(None, None, Some(&tweak))?;
                decrypt.cipher_update_inplace(page, UNIT_BYTES)?
            }
            6 => engine.write_at(file, disk, &&*page, offset).map_err(failed)?,
            7 => engine.read_at(file, disk, page, offset).map_err(failed)?,
            8 => null.write_at(null_file, disk, &&*page, offset).map_err(failed)?,
            _ => null.read_at(null_file, disk, page, offset).map_err(failed)?,
        };
        if done == UNIT_BYTES { Ok(()) } else { Err("a page is not whole".into()) }
    }
}

fn failed(error: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.0)
}

/// The median, and the ends of its 90 % interval by the ranks that a binomial distribution gives.
fn median(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    let half = all.len() as f64 / 2.0;
    let off = 1.645 * half.sqrt() / 2_f64.sqrt();
    [half, half - off, half + off].map(|rank| all[(rank as usize).min(all.len() - 1)])
}

fn measure(pages: usize) -> Result<Vec<[f64; KINDS]>, Box<dyn Error>> {
    let mut bench = Bench::new(pages)?;
    let mut memory: Vec<u8> = (0..pages * UNIT_BYTES).map(|n| ((n * 31) >> 3) as u8 | 1).collect();
    let (mut next, mut rounds) = (0, Vec::with_capacity(ROUNDS));
    for round in 0..ROUNDS {
        let mut times = [0.0; KINDS];
        for turn in 0..KINDS {
            let kind = (turn + round) % KINDS;
            let start = Instant::now();
            for _ in 0..PAGES {
                // A prime: no two neighbours follow each other, which the processor would foresee.
                next = (next + 4_099) % pages;
                let at = next * UNIT_BYTES;
                bench.run(kind, next, &mut memory[at..at + UNIT_BYTES])?;
            }
            times[kind] = start.elapsed().as_secs_f64() * 1e6 / PAGES as f64;
        }
        rounds.push(times);
    }
    Ok(rounds)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (name, pages) in [("hot", 4), ("cold", COLD_PAGES)] {
        let rounds = measure(pages)?;
        println!("{name} pages of 8 KiB, in µs");
        for (kind, what) in NAMES.iter().enumerate() {
            let [middle, low, high] = median(rounds.iter().map(|times| times[kind]).collect());
            println!("  {middle:6.3}  ({low:.3}–{high:.3})  {what}");
        }
        let show = |what: &str, goal: &str, ratio: &dyn Fn(&[f64; KINDS]) -> f64| {
            let [middle, low, high] = median(rounds.iter().map(ratio).collect());
            println!("  {middle:6.3}  ({low:.3}–{high:.3})  {what}{goal}");
        };
        show("encrypts: AWS-LC ÷ OpenSSL", "", &|times| times[2] / times[4]);
        show("decrypts: AWS-LC ÷ OpenSSL", "", &|times| times[3] / times[5]);
        let goal = "; goal: at most 1.15";
        show("pwrite, encrypted ÷ (pwrite + cipher)", goal, &|times| times[6] / (times[0] + times[2]));
        show("pread, decrypted ÷ (pread + cipher)", goal, &|times| times[7] / (times[1] + times[3]));
        show("pwrite, encrypted ÷ pwrite", "", &|times| times[6] / times[0]);
        show("pread, decrypted ÷ pread", "", &|times| times[7] / times[1]);
        show("pwrite, null cipher ÷ pwrite", "", &|times| times[8] / times[0]);
        show("pread, null cipher ÷ pread", "", &|times| times[9] / times[1]);
    }
    Ok(())
}
