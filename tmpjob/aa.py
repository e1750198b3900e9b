"""Prototype: monkeypatch _Run.solution with Anderson acceleration."""
import math, os, numpy as np
from deblur.solvers import admm
from deblur.solvers.certificate import excess
from deblur.problem import Solution
from deblur.solvers.schedule import history
MEM=int(os.environ.get("MEM","5")); LATE=int(os.environ.get("LATE","0")); EV=int(os.environ.get("EV","10")); GROW=float(os.environ.get("GROW","2"))
class Anderson:
    def __init__(self): self.clear()
    def clear(self): self.points=[]; self.res=[]; self.start=None
    def step(self, splits):
        xp=np
        us=[a for s in splits for part in (s.u,s.t) for a in part]
        now=[a.copy() for a in us]
        q=np.concatenate([((2*u-t)*math.sqrt(s.rho)).ravel() for s in splits for u,t in zip(s.u,s.t)])
        if self.start is not None:
            r=q-self.start
            if self.res and np.linalg.norm(r)>GROW*np.linalg.norm(self.res[-1]) :
                # back
                for a,b in zip(us,self.points[-1]): a[...]=b
                last=self.points[-1]
                self.points=[]; self.res=[]
                self.start=np.concatenate([((2*u-t)*math.sqrt(s.rho)).ravel() for s in splits for u,t in zip(s.u,s.t)])
                self.rej=getattr(self,"rej",0)+1
                return
            self.points.append(now); self.res.append(r)
            self.points=self.points[-MEM:]; self.res=self.res[-MEM:]
            if len(self.res)>1:
                R=np.array(self.res); 
                G=R@R.T; G/=np.trace(G); G+=1e-10*np.eye(len(G))
                w=np.linalg.solve(G,np.ones(len(G))); w/=w.sum()
                for k,a in enumerate(us): a[...]=sum(wj*p[k] for wj,p in zip(w,self.points))
        self.start=np.concatenate([((2*u-t)*math.sqrt(s.rho)).ravel() for s in splits for u,t in zip(s.u,s.t)])
def solution(self):
    steps, schedule, problem = self.steps, self.schedule, self.problem
    sums = np.zeros((0, 1, 5)); n, converged, above = 0, False, math.inf
    aa=Anderson(); nextcheck=50; late=250
    cheap=schedule.most==2000 and schedule.excess<math.inf
    while not converged and n < schedule.most:
        falling = self.lam > problem.lam
        every = 8 if falling else EV
        steps.submit(min(every - n % every, schedule.most - n, steps.batch if not cheap else every))
        self._record(sums)
        sums, within = steps.collect()
        n += len(sums)
        geo = n>=nextcheck
        if schedule.excess < math.inf and not falling and (within or n == schedule.most or geo):
            if geo: nextcheck*=1.25
            above = excess(self.factor, steps, float(sums[-1, :, 0].sum()))
            ok = above <= schedule.excess and self._still(n)
            if within: 
                self.rtol *= max(0.1, min(0.8, schedule.excess / (above or 1.0)))
                self._prepare()
            within=ok
        converged = within
        if falling and n % every == 0:
            self._move_to(max(self.lam / 4, problem.lam)); aa.clear()
        elif not falling and not converged and n % every == 0 and (n <= 200 or (LATE and n>=late)):
            if n>200: late*=1.5
            before=[s.rho for s in steps.splits]
            self._balance(sums[-1])
            if before!=[s.rho for s in steps.splits]: aa.clear()
        if cheap and not falling and not converged and n%every==0 and n<schedule.most and MEM>1 and n>=50: aa.step(steps.splits)
    self.rej=getattr(aa,"rej",0)
    self._record(sums)
    state, (primal, dual) = steps.state(self.lam, self.scale), self.worst[-1]
    scene = state.x[(..., *self.domain.scene)]
    if problem.bounds is not None: scene = scene.clip(*problem.bounds)
    return Solution(self.scale.up(scene), n, converged, f"{above} rej {self.rej}", history(self.objective, self.worst), state)
admm._Run.solution=solution
from deblur.solvers import schedule as sch
CAP=float(os.environ.get("CAP","0"))
if CAP:
    _init=sch.Schedule.__init__
    def init(self, problem, weight, level, scale):
        _init(self, problem, weight, level, scale)
        gain=problem.operator.norm_bound
        k=len(sch.REGULARIZERS.get(problem.regularizer,()))
        top=CAP*10*self.rho[0]*gain**2
        self.rho=[self.rho[0],*[min(r,top) for r in self.rho[1:1+k]],*self.rho[1+k:]]
    sch.Schedule.__init__=init
BAL=int(os.environ.get("BAL","0")); LAG=float(os.environ.get("LAG","0"))
if BAL:
    def _balance(self, sums):
        if BAL==2 and not (self.schedule.most==2000): return _old(self,sums)
        rel=self.steps.relative(sums)
        f=[]
        for s,(p,d),row in zip(self.steps.splits, rel.tolist(), sums):
            y=math.sqrt(sum(float((v*v).sum()) for v in s.dual))
            dual=s.rho*math.sqrt(row[2])/max(y, 1e-3*s.rho*math.sqrt(self.steps.least_size)) if y else d
            L=LAG or self.schedule.lagging
            f.append(1.0 if not (p>L*dual or dual>L*p) else 2.0 if p>dual else .5)
        for split,x in zip(self.steps.splits,f):
            if x!=1: self.steps.rescale(split,x)
        if any(x!=1 for x in f): self._prepare()
    _old=admm._Run._balance
    admm._Run._balance=_balance
