# Writes the seed corpus of fuzz_wal_frame: one byte of repair flags, then a segment image.
import struct,subprocess,sys,os
out=sys.argv[1]
T=[]
for i in range(256):
    c=i
    for _ in range(8): c=(c>>1)^0x82F63B78 if c&1 else c>>1
    T.append(c)
def crc(b):
    c=0xffffffff
    for x in b: c=T[(c^x)&255]^(c>>8)
    return c^0xffffffff
assert crc(b'123456789')==0xe3069283
def seg(number=1,shards=4,epoch=77,rs=0,rz=0,ver=1,must=0,may=0):
    h=b'RIMSWAL1'+struct.pack('<HHIIIIIQQ',ver,0,must,may,shards,number,rs,epoch,rz)
    h+=bytes(60-len(h)); return h+struct.pack('<I',crc(h))
def frame(payload,shard=0,first=1,count=1,raw=None,codec=0,number=1,epoch=77):
    h=b'\xf7Rw\xfa'+struct.pack('<IIHBBQIIQI',len(payload),len(payload) if raw is None else raw,shard,codec,0,first,count,number,epoch,crc(payload))
    return h+struct.pack('<I',crc(h))+payload
def zstd(b): return subprocess.run(['zstd','-1','-q','--no-check','-c','--stream-size=%d'%len(b)],input=b,capture_output=True,check=True).stdout
def w(name,image,flags=0): open(os.path.join(out,name),'wb').write(bytes([flags])+image)
p=b'abcdefgh'*20
big=bytes(range(64))*40
z=zstd(big)
good=seg()+frame(p)+frame(b'x'*8,1,1,2)+frame(z,0,2,3,len(big),1)+frame(b'',2)
w('good',good)
w('empty',b'')
w('header_only',seg())
w('short_header',seg()[:40])
w('no_header',bytes(64)+good[64:])
w('newer',seg(ver=2)+frame(p))
w('must_bit',seg(must=1)+frame(p))
w('may_bit',seg(may=1)+frame(p))
w('other_shards',seg(shards=9)+frame(p))
w('torn',good[:-3]); w('torn_payload',(seg()+frame(p))[:-10])
b=bytearray(good); b[64+48+5]^=1; w('bad_payload',bytes(b))
b=bytearray(good); b[64+9]^=1; w('bad_header',bytes(b))
w('garbage_between',seg()+frame(p)+b'\xf7Rw\xfa\xf7Rw'*9+frame(p,0,2))
w('stale_epoch',seg()+frame(p,epoch=78)+frame(p))
w('stale_segment',seg()+frame(p,number=2)+frame(p))
w('gap',seg()+frame(p,0,1)+frame(p,0,9)+frame(p,3,2**63))
w('twice',seg()+frame(p)+frame(p)+frame(p,0,1,5))
w('sequence_wraps',seg()+frame(p,0,2**64-1,1)+frame(p,0,2**64-1,2))
w('lying_raw_size',seg()+frame(z,raw=len(big)+1,codec=1)+frame(z,raw=2**28,codec=1)+frame(p,raw=3))
w('lying_stored_size',seg()+frame(p)[:4]+struct.pack('<I',2**32-1)+frame(p)[8:],7)
w('unknown_codec',seg()+frame(p,codec=9)+frame(p))
w('bad_shard',seg()+frame(p,shard=4)+frame(p))
w('cut_zstd',seg()+frame(z[:-4],raw=len(big),codec=1))
w('frame_in_frame',seg()+frame(frame(p,0,50)+b'q')[:40]+b'!!!!'+frame(frame(p,0,50)+b'q')[44:])
w('refused_payload',seg()+frame(b'\xff'*9)+frame(p,0,2))
w('refused_twice',seg()+frame(b'\xff'*9)+frame(b'\xff'*9)+frame(p,0,1))
w('repair_all',bytes(64)+good[64:],15)
print(len(os.listdir(out)))
