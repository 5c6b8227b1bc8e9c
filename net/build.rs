//! Generates the bindings to DPDK if the feature `dpdk` is enabled; otherwise does nothing and needs nothing.
//!
//! pkg-config finds the system's DPDK 22.11; bindgen (which needs libclang) reads its headers through `shim/dpdk.h`,
//! and the shim beside it is compiled for their inline functions. Another minor version of the ABI could be read from
//! its own headers, but only 22.11 is tested, so only 22.11 is accepted.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    use bindgen::EnumVariation;

    const FUNCTIONS: &str = "splinter_.*|rte_eal_(init|cleanup)|rte_strerror|rte_thread_(un)?register\
        |rte_eth_dev_(configure|start|stop|close|info_get|count_avail|adjust_nb_rx_tx_desc|socket_id)\
        |rte_eth_(rx|tx)_queue_setup|rte_eth_macaddr_get|rte_eth_promiscuous_enable\
        |rte_eth_stats_get|rte_pktmbuf_(pool_create|free_bulk)|rte_mempool_free\
        |rte_flow_(create|flush|isolate)";
    const TYPES: &str =
        "rte_flow_(attr|item|action|error|item_udp|item_type|action_type|action_queue)|splinter_.*";
    const CONSTANTS: &str = "SPLINTER_.*";
    /// Types that bindgen cannot lay out (packed with aligned fields), and whose fields are not used here.
    const OPAQUE: &str = "rte_arp_.*|rte_l2tpv2_.*|rte_gtp_.*|rte_ipv4_hdr|rte_geneve_.*";

    pub fn build() {
        pkg_config::Config::new().range_version("22.11".."22.12").probe("libdpdk").expect(
            "the feature `dpdk` needs DPDK 22.11: apt-get install libdpdk-dev dpdk clang libclang-dev",
        );
        let flags = compiler_flags();
        let mut shim = cc::Build::new();
        shim.file("shim/dpdk.c").opt_level(3).warnings(true);
        for flag in &flags {
            shim.flag(flag);
        }
        shim.compile("splinter_dpdk");
        let bindings = bindgen::Builder::default()
            .header("shim/dpdk.h")
            .clang_args(&flags)
            .allowlist_function(FUNCTIONS)
            .allowlist_type(TYPES)
            .allowlist_var(CONSTANTS)
            .opaque_type(OPAQUE)
            .default_enum_style(EnumVariation::ModuleConsts)
            .derive_debug(false)
            .layout_tests(false)
            .generate_comments(false)
            .generate()
            .expect("bindgen reads the headers of DPDK; it needs libclang");
        let out = env::var("OUT_DIR").expect("cargo says where to write");
        bindings.write_to_file(Path::new(&out).join("dpdk.rs")).expect("the bindings are written");
    }

    /// Returns pkg-config's compiler flags for DPDK's headers, the instruction set among them.
    fn compiler_flags() -> Vec<String> {
        let said = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
        let said = said.expect("pkg-config has just found it");
        String::from_utf8_lossy(&said.stdout).split_whitespace().map(String::from).collect()
    }
}
