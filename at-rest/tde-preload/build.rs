//! Compiles the entry points with a variable number of arguments, which only C can define.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    cc::Build::new().file("src/shim.c").warnings(true).compile("ciphertoll_tde_shim");
}
