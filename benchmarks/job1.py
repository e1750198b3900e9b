import time,numpy as np,cupy as cp,deblur
from deblur.solvers import richardson_lucy as rl
from deblur.operators import torus_gpu
mp=cp.get_default_memory_pool()
def psf(a,b):
    z,y,x=np.mgrid[-(a//2):a//2+1,-(b//2):b//2+1,-(b//2):b//2+1]; s=1.5+.4*abs(z)
    h=np.exp(-(x*x+y*y)/2/s**2)/s**2*np.exp(-abs(z)/12); return h/h.sum()
def data(shape,h):
    B=deblur.Blur(h,shape,"unknown"); rng=cp.random.default_rng(0)
    f=(rng.random(B.scene_shape,dtype=np.float32)<.003).astype(np.float32)*2000+2; m=B.forward(f); return cp.random.poisson(cp.maximum(m,0)).astype(np.float32)
h=psf(7,9); g=data((12,40,38),h); o=dict(method="richardson-lucy",rtol=1e-12,max_iterations=20,check=False)
for b in ("unknown","periodic","reflect","zero"):
    a=deblur.solve(g,h,boundary=b,**o).image.get(); c=deblur.solve(g.get().astype(float),h,boundary=b,**o).image
    print(b,"float32 GPU against float64 CPU",abs(a-c).max()/abs(c).max(),flush=True)
u,v=(deblur.solve(x,h,boundary="unknown",method="richardson-lucy") for x in (g,g.get())); print("own stop",u.iterations,v.iterations)
import deblur.methods
for shape,(a,b),bound in (((64,1024,1024),(15,31),"periodic"),((64,1024,1024),(15,31),"unknown"),((35,2048,2048),(69,181),"unknown")):
    cp.get_default_memory_pool().free_all_blocks(); deblur.pool.forget() if hasattr(deblur,"pool") else None; mp.free_all_blocks()
    h=psf(a,b); g=data(shape,h); mp.free_all_blocks()
    B=deblur.Blur(h,shape,bound); T=np.prod(B.torus().lengths)*4
    D=deblur.Deblurrer(h,shape,0.0,gpu=True,method="richardson-lucy",boundary=bound,rtol=1e-12,max_iterations=50,dtype="float32")
    for k in range(2 if shape[0]==64 else 1):
        mp.free_all_blocks(); base=mp.total_bytes(); cp.cuda.Device().synchronize(); t=time.time(); r=D.solve(g,check=False) if hasattr(D,"solve") else D(g); cp.cuda.Device().synchronize(); t=time.time()-t
        print(shape,bound,"torus",B.torus().lengths,"50 its s",round(t,3),"Gvox-it/s image",round(50*np.prod(shape)/t/1e9,2),"torus",round(50*T/4/t/1e9,2),"peak of torus volumes",round((mp.total_bytes()-base)/T,2),"base",round(base/T,2),"said",round(deblur.METHODS["richardson-lucy"].memory(r.problem)/T,2) if hasattr(r,"problem") else "",flush=True)
    del r,D
    t=time.time(); r=deblur.solve(g,h,method="richardson-lucy",boundary=bound,check=False,max_iterations=50); cp.cuda.Device().synchronize(); print("own stop",r.iterations,round(time.time()-t,2),"s",str(r)[-200:].replace("\n"," "),flush=True); del r,g
