//! Every row of the call table against the headers that CUPTI ships: the id, and where the arguments lie.

mod support;

use std::collections::HashMap;
use std::path::Path;

use cupti_sys::{cbid, domain};

/// `CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize = 126,` -> ("cuStreamSynchronize", 126).
fn ids(header: &Path, prefix: &str) -> HashMap<u32, String> {
    let text = std::fs::read_to_string(header).unwrap();
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix(prefix)?.split_once('=')?;
            Some((rest.trim().trim_end_matches(',').parse().ok()?, name.trim().to_owned()))
        })
        .collect()
}

/// Fields of a `NAME_params` struct: (name, offset, size), and the struct's size.
type Layout = (Vec<(String, usize, usize)>, usize);

fn layouts(header: &Path, layouts: &mut HashMap<String, Layout>) {
    let text = std::fs::read_to_string(header).unwrap_or_default();
    for part in text.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once("_params_st {") else { continue };
        let Some((body, _)) = rest.split_once('}') else { continue };
        let (mut fields, mut at, mut most) = (Vec::new(), 0usize, 1);
        let mut understood = true;
        for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let Some((kind, name)) = field.rsplit_once(|c: char| c.is_whitespace() || c == '*') else {
                understood = false;
                break;
            };
            let pointer = field.contains('*') || name.contains('[');
            let kind = kind.trim().trim_start_matches("const ").trim_start_matches("struct ").trim();
            let (size, align) = match kind {
                _ if pointer => (8, 8),
                "int" | "unsigned int" | "CUdevice" | "CUdeviceptr_v1" => (4, 4),
                "cudaExtent" | "cudaPos" => (24, 8),
                "cudaPitchedPtr" => (32, 8),
                "dim3" => (12, 4),
                kind if kind.starts_with("enum") => (4, 4),
                // Handles, size_t, device addresses. A wrong guess shows in the sizes below.
                _ => (8, 8),
            };
            at = at.next_multiple_of(align);
            fields.push((name.trim_end_matches(']').to_owned(), at, size));
            at += size;
            most = most.max(align);
        }
        if understood {
            layouts.insert(name.trim().to_owned(), (fields, at.next_multiple_of(most)));
        }
    }
}

#[test]
fn ids_and_argument_layouts_are_those_of_every_header() {
    for (version, folder) in support::cupti_folders() {
        let include = folder.join("include");
        let driver = ids(&include.join("cupti_driver_cbid.h"), "CUPTI_DRIVER_TRACE_CBID_");
        let runtime = ids(&include.join("cupti_runtime_cbid.h"), "CUPTI_RUNTIME_TRACE_CBID_");
        assert!(driver.len() > 700 && runtime.len() > 400);
        let mut structs = HashMap::new();
        for header in
            ["generated_cuda_meta.h", "generated_cuda_runtime_api_meta.h", "generated_cudart_removed_meta.h"]
        {
            layouts(&include.join(header), &mut structs);
        }
        let (mut same_id, mut same_layout) = (0, 0);
        for call in cbid::all().chain(cbid::timeline()) {
            let headers = if call.domain == domain::DRIVER_API { &driver } else { &runtime };
            let Some(name) = headers.get(&call.cbid) else { continue };
            let plain = if call.domain == domain::DRIVER_API {
                name.as_str()
            } else {
                name.rsplit_once("_v").map_or(name.as_str(), |(plain, _)| plain)
            };
            let placeholder = plain.strip_prefix("cuda").is_some_and(|rest| rest.parse::<u32>().is_ok());
            if placeholder {
                continue;
            }
            assert_eq!(plain, call.name, "{version}: id {}", call.cbid);
            same_id += 1;

            let Some((fields, size)) = structs.get(name) else {
                assert!(
                    call.params.size() == 0 || call.params.reads().is_empty() || version.starts_with("13"),
                    "{name}"
                );
                continue;
            };
            let params = &call.params;
            assert_eq!(params.size(), *size, "{version}: size of {name}");
            let offset = |names: &[&str], bytes| {
                fields
                    .iter()
                    .find(|(field, _, size)| names.contains(&field.as_str()) && *size == bytes)
                    .map(|(_, offset, _)| *offset as u16)
            };
            assert_eq!(
                params.stream_offset(),
                offset(&["hStream", "stream"], 8),
                "{version}: stream of {name}"
            );
            if params.object_offset().is_some() {
                let objects = ["hEvent", "event", "hGraph", "hGraphExec", "graphExec"];
                assert_eq!(params.object_offset(), offset(&objects, 8), "{version}: object of {name}");
            }
            if call.name.contains("Memcpy") {
                assert_eq!(params.kind_offset(), offset(&["kind"], 4), "{version}: kind of {name}");
            }
            for (at, bytes) in params.reads() {
                assert!(
                    fields.iter().any(|(_, offset, size)| *offset == at && *size == bytes),
                    "{version}: {name} has no field of {bytes} bytes at {at}"
                );
            }
            same_layout += 1;
        }
        assert!(same_id > 200 && same_layout > 180, "{version}: {same_id} ids, {same_layout} layouts");
        eprintln!("{version}: {same_id} ids and {same_layout} layouts compared");
    }
}
