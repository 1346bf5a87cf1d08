//! CUDA driver and cuBLAS.
//!
//! Both are loaded at run time, so that this program runs without them and reports that. The bindings panic
//! if a library is missing, so its presence is checked before.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::sys::{self, CUevent_flags, CUresult};
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DriverError,
    PinnedHostSlice, ValidAsZeroBits, result,
};
use muster_model::ids::GpuUuid;

use crate::error::CheckError;

/// The driver, with the GPUs that it lists.
#[derive(Debug)]
pub(crate) struct Driver {
    gpus: Vec<GpuUuid>,
}

impl Driver {
    /// Loads the driver and lists its GPUs.
    pub(crate) fn open() -> Result<Self, CheckError> {
        // SAFETY: loading a library runs its initialisers; this is the driver that every CUDA program
        // loads.
        if !unsafe { sys::is_culib_present() } {
            return Err(CheckError::NoDriver);
        }
        let broken = |error: DriverError| CheckError::Driver(describe(error));
        result::init().map_err(broken)?;
        let count = result::device::get_count().map_err(broken)?;
        let uuid = |ordinal| {
            let device = result::device::get(ordinal)?;
            result::device::get_uuid(device)
        };
        let uuids: Result<Vec<_>, DriverError> = (0..count).map(uuid).collect();
        // Their type is C's `char`, which is signed on some processors.
        let bytes = |uuid: sys::CUuuid| uuid.bytes.map(|byte| byte.to_ne_bytes()[0]);
        let uuids = uuids.map_err(broken)?.into_iter();
        let gpus = uuids.map(|uuid| GpuUuid(u128::from_be_bytes(bytes(uuid))));
        Ok(Self {
            gpus: gpus.collect(),
        })
    }

    /// The GPUs in the driver's order.
    pub(crate) fn gpus(&self) -> Vec<GpuUuid> {
        self.gpus.clone()
    }

    /// Opens a GPU.
    pub(crate) fn gpu(&self, uuid: GpuUuid) -> Result<Gpu, CheckError> {
        let ordinal = self
            .gpus
            .iter()
            .position(|gpu| *gpu == uuid)
            .ok_or(CheckError::UnknownGpu(uuid))?;
        let context = CudaContext::new(ordinal).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        Ok(Gpu {
            uuid,
            stream: context.default_stream(),
            context,
        })
    }
}

/// A GPU with one queue of work.
#[derive(Debug)]
pub(crate) struct Gpu {
    uuid: GpuUuid,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Elements of GPU memory: numbers for which zero bits are valid.
pub(crate) trait Element: DeviceRepr + ValidAsZeroBits {}

impl<T: DeviceRepr + ValidAsZeroBits> Element for T {}

/// Memory of a GPU.
pub(crate) type Block<T> = CudaSlice<T>;
/// Pinned memory of the host that the GPU accesses directly.
pub(crate) type HostBlock<T> = PinnedHostSlice<T>;

impl Gpu {
    pub(crate) const fn uuid(&self) -> GpuUuid {
        self.uuid
    }

    /// Free bytes of its memory.
    pub(crate) fn free_bytes(&self) -> Result<u64, CheckError> {
        let (free, _) = self
            .context
            .mem_get_info()
            .map_err(failed("cuMemGetInfo"))?;
        Ok(free as u64)
    }

    /// Allocates zeroed memory of this GPU; none if there is not enough.
    pub(crate) fn block<T: Element>(&self, length: usize) -> Result<Option<Block<T>>, CheckError> {
        match self.stream.alloc_zeros(length) {
            Ok(block) => Ok(Some(block)),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(failed("cuMemAlloc")(error)),
        }
    }

    /// Allocates zeroed memory of the host near this GPU.
    pub(crate) fn host_block<T: Element>(&self, length: usize) -> Result<HostBlock<T>, CheckError> {
        // SAFETY: all of it is set below before any read.
        let allocated = unsafe { self.context.alloc_pinned_with_flags::<T>(length, 0) };
        let mut block = allocated.map_err(failed("cuMemHostAlloc"))?;
        let start = block.as_mut_ptr().map_err(failed("cuEventSynchronize"))?;
        // SAFETY: `start` has room for `length` values of a type for which zero bits are valid.
        unsafe { start.write_bytes(0, length) };
        Ok(block)
    }

    /// Copies from the host; blocks until done.
    pub(crate) fn upload<T: Element>(
        &self,
        from: &HostBlock<T>,
        to: &mut Block<T>,
    ) -> Result<(), CheckError> {
        let copied = self.stream.memcpy_htod(from, to);
        copied.map_err(failed("cuMemcpyHtoDAsync"))?;
        self.wait()
    }

    /// Copies to the host; blocks until done.
    pub(crate) fn download<T: Element>(
        &self,
        from: &Block<T>,
        to: &mut HostBlock<T>,
    ) -> Result<(), CheckError> {
        let copied = self.stream.memcpy_dtoh(from, to);
        copied.map_err(failed("cuMemcpyDtoHAsync"))?;
        self.wait()
    }

    /// Copies from another GPU; blocks until done.
    pub(crate) fn fetch<T>(&self, from: &Block<T>, to: &mut Block<T>) -> Result<(), CheckError> {
        let copied = self.stream.memcpy_dtod(from, to);
        copied.map_err(failed("cuMemcpyPeerAsync"))?;
        self.wait()
    }

    /// Whether this GPU can access the memory of another one directly; enables that access.
    pub(crate) fn reach(&self, peer: &Self) -> Result<bool, CheckError> {
        let mut can = 0;
        let (own, other) = (self.context.cu_device(), peer.context.cu_device());
        // SAFETY: both devices are open, and `can` outlives the call.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, own, other) };
        asked.result().map_err(failed("cuDeviceCanAccessPeer"))?;
        if can == 0 {
            return Ok(false);
        }
        self.context
            .bind_to_thread()
            .map_err(failed("cuCtxSetCurrent"))?;
        // SAFETY: both contexts live, and that of this GPU is current.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context.cu_ctx(), 0) } {
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            other => Err(failed("cuCtxEnablePeerAccess")(DriverError(other))),
        }
    }

    /// Duration of some work in milliseconds of the GPU's own clock.
    pub(crate) fn timed(
        &self,
        work: impl FnOnce() -> Result<(), CheckError>,
    ) -> Result<f64, CheckError> {
        let mark = || {
            let event = self
                .context
                .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT))
                .map_err(failed("cuEventCreate"))?;
            event
                .record(&self.stream)
                .map_err(failed("cuEventRecord"))?;
            Ok(event)
        };
        let began = mark()?;
        work()?;
        let took = began.elapsed_ms(&mark()?);
        Ok(took.map_err(failed("cuEventElapsedTime"))?.into())
    }

    /// Waits for all work submitted to this GPU.
    fn wait(&self) -> Result<(), CheckError> {
        self.stream
            .synchronize()
            .map_err(failed("cuStreamSynchronize"))
    }
}

/// Content of host memory, once no GPU uses it.
pub(crate) fn words<T: Element>(block: &HostBlock<T>) -> Result<&[T], CheckError> {
    block.as_slice().map_err(failed("cuEventSynchronize"))
}

/// Like [`words`], mutable.
pub(crate) fn words_mut<T: Element>(block: &mut HostBlock<T>) -> Result<&mut [T], CheckError> {
    block.as_mut_slice().map_err(failed("cuEventSynchronize"))
}

/// cuBLAS on one GPU.
#[derive(Debug)]
pub(crate) struct Multiplier<'a> {
    gpu: &'a Gpu,
    /// Never closed: closing fails on a failed GPU, at which the bindings panic. The process ends soon.
    blas: ManuallyDrop<CudaBlas>,
}

/// Precision of the factors. Their product is always in single precision, and so are its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// 16 bits with a fraction of 10: the format of the tensor cores.
    Half,
    /// 32 bits.
    Single,
}

impl<'a> Multiplier<'a> {
    pub(crate) fn open(gpu: &'a Gpu) -> Result<Self, CheckError> {
        // SAFETY: as for the driver.
        if !unsafe { cublas::sys::is_culib_present() } {
            return Err(CheckError::NoProducts);
        }
        let blas = CudaBlas::new(Arc::clone(&gpu.stream)).map_err(refused("cublasCreate"))?;
        Ok(Self {
            gpu,
            blas: ManuallyDrop::new(blas),
        })
    }

    pub(crate) const fn gpu(&self) -> &'a Gpu {
        self.gpu
    }

    /// Starts to add the product of two square matrices to `sum`, or to store it there. All are in column
    /// order; the size of a factor's elements follows from its precision.
    pub(crate) fn multiply<T>(
        &self,
        precision: Precision,
        size: usize,
        left: &Block<T>,
        right: &Block<T>,
        sum: &mut Block<f32>,
        adds: bool,
    ) -> Result<(), CheckError> {
        use cublas::sys::{
            cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType_t,
        };
        let (bytes, kind) = match precision {
            Precision::Half => (2, cudaDataType_t::CUDA_R_16F),
            Precision::Single => (4, cudaDataType_t::CUDA_R_32F),
        };
        assert_eq!(
            size_of::<T>(),
            bytes,
            "the elements must have the size of the precision"
        );
        let elements = size * size;
        assert!(left.len() >= elements && right.len() >= elements && sum.len() >= elements);
        let rows = i32::try_from(size).expect("SIZE_MAX is below 2^31");
        let (one, beta) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
        let stream = &self.gpu.stream;
        let (left, _left_used) = left.device_ptr(stream);
        let (right, _right_used) = right.device_ptr(stream);
        let (sum, _sum_used) = sum.device_ptr_mut(stream);
        // SAFETY: the blocks hold `rows` times `rows` elements of these kinds each, as was asserted, and
        // live until the work on their stream is done; the scalar factors are single numbers of this
        // process.
        let multiplied = unsafe {
            cublas::result::gemm_ex(
                *self.blas.handle(),
                cublasOperation_t::CUBLAS_OP_N,
                cublasOperation_t::CUBLAS_OP_N,
                rows,
                rows,
                rows,
                (&raw const one).cast(),
                left as *const _,
                kind,
                rows,
                right as *const _,
                kind,
                rows,
                (&raw const beta).cast(),
                sum as *mut _,
                cudaDataType_t::CUDA_R_32F,
                rows,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        multiplied.map_err(refused("cublasGemmEx"))
    }
}

fn failed(call: &'static str) -> impl FnOnce(DriverError) -> CheckError {
    move |error| CheckError::Call {
        call,
        why: describe(error),
    }
}

fn refused(call: &'static str) -> impl FnOnce(cublas::result::CublasError) -> CheckError {
    move |error| CheckError::Call {
        call,
        why: format!("{:?}", error.0),
    }
}

/// Name and description of an error.
fn describe(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy());
    match text {
        Ok(text) => format!("{:?}, {text}", error.0),
        Err(_) => format!("{:?}", error.0),
    }
}
