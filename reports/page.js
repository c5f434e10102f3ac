(function(){
'use strict';
function key(cell){
  if(!cell)return null;
  var v=cell.getAttribute('data-v');
  if(v!==null)return parseFloat(v);
  return cell.classList.contains('num')?null:cell.textContent.trim().toLowerCase();
}
function sort(table,column,head,heads){
  var down=head.getAttribute('aria-sort')==='ascending';
  for(var i=0;i<heads.length;i++)heads[i].removeAttribute('aria-sort');
  head.setAttribute('aria-sort',down?'descending':'ascending');
  var body=table.tBodies[0],rows=Array.prototype.slice.call(body.rows);
  rows.sort(function(a,b){
    var x=key(a.cells[column]),y=key(b.cells[column]);
    if(x===null||y===null)return (x===null)-(y===null);
    var order=typeof x==='number'&&typeof y==='number'?x-y:String(x)<String(y)?-1:String(x)>String(y)?1:0;
    return down?-order:order;
  });
  rows.forEach(function(row){body.appendChild(row);});
}
document.querySelectorAll('table.sortable').forEach(function(table){
  var heads=table.tHead.rows[table.tHead.rows.length-1].cells;
  Array.prototype.forEach.call(heads,function(head,column){
    head.tabIndex=0;
    head.title='sort';
    head.addEventListener('click',function(){sort(table,column,head,heads);});
    head.addEventListener('keydown',function(event){
      if(event.key==='Enter'||event.key===' '){event.preventDefault();sort(table,column,head,heads);}
    });
  });
});
var button=document.getElementById('theme');
button.hidden=false;
button.addEventListener('click',function(){
  var root=document.documentElement,dark=matchMedia('(prefers-color-scheme: dark)').matches;
  var now=root.getAttribute('data-theme')||(dark?'dark':'light');
  root.setAttribute('data-theme',now==='dark'?'light':'dark');
});
})();
